"""Slurm's commands: one bulk query each, with a timeout and bounded output.

Their text output is the same from Slurm 20.11 to today, while their JSON has several dialects, is
five to seven times larger and, from sacct of 22.05, lacks exit codes. Times are printed in UTC
(``TZ=UTC``), so that no hour occurs twice. Fields are separated by 0x1F and squeue's jobs
terminated by 0x1E, which no name contains.

Source: sacct(1), squeue(1), sinfo(1), scontrol(1).
"""

import os
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from ccpipe.errors import UnavailableError
from ccpipe.process import child

SEPARATOR, END = "\x1f", "\x1e"
MAX_OUTPUT = 2**30

FINAL_STATES = (
    "BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY",
    "PREEMPTED", "REQUEUED", "REVOKED", "TIMEOUT",
)  # fmt: skip

SACCT_COLUMNS = (
    "JobIDRaw", "JobID", "User", "UID", "Account", "State", "Submit", "Start", "End", "Suspended",
    "TimelimitRaw", "Partition", "Reservation", "NodeList", "Priority", "Layout", "ReqCPUS",
    "ReqMem", "ReqNodes", "ReqTRES", "AllocTRES", "ExitCode", "MinCPU", "AveCPU", "AveDiskRead",
    "AveDiskWrite", "TRESUsageInAve", "TRESUsageOutAve", "AveRSS", "AveVMSize", "SystemCPU",
    "UserCPU", "MaxRSS", "MaxVMSize", "JobName", "DBIndex",
)  # fmt: skip
"""Without columns that change while a job runs, so that an unchanged row stays identical.

The last one is a number, so that the end of a row is clear even if its name contains newlines.
"""

_SQUEUE = {
    "%Q": "priority", "%i": "jobid", "%A": "jobid", "%T": "state", "%u": "user", "%U": "uid",
    "%a": "account", "%P": "partition", "%l": "time_limit", "%V": "submit_time",
    "%S": "start_time", "%e": "end_time", "%N": "nodelist", "%D": "nodes", "%C": "cpus",
    "%v": "reservation", "%j": "name", "%h": "over_subscribe",
}  # fmt: skip
SQUEUE_COLUMNS = tuple(_SQUEUE.values())
"""The first one, the priority, changes while jobs wait."""


class Commands:
    """Runs sacct, squeue, scontrol and sinfo; each raises UnavailableError if it fails."""

    def __init__(self, *, folder: str, timeout: float) -> None:
        """Find the programs in a folder, or on the ``PATH`` if it is empty."""
        self.folder = folder
        self.timeout = timeout

    def sacct(self, since: int, until: int, *, uncompleted: bool) -> bytes:
        states = [] if uncompleted else ["--state", ",".join(FINAL_STATES)]
        return self._run([
            "sacct", "--allusers", "--duplicates", "--noheader", "--parsable2", "--noconvert",
            "--delimiter", SEPARATOR, "--format", ",".join(SACCT_COLUMNS), *states,
            "--starttime", _local(since), "--endtime", _local(until),
        ])  # fmt: skip

    def squeue(self) -> bytes:
        form = SEPARATOR.join(_SQUEUE) + END
        return self._run(["squeue", "--all", "--noheader", "--states", "all", "--format", form])

    def scontrol(self) -> bytes:
        return self._run(["scontrol", "--all", "--details", "show", "job"])

    def batch_script(self, job: int, seconds: float) -> bytes:
        """Return the script of a job that slurmctld knows, within a time.

        scontrol succeeds also where there is none, and then prints nothing.
        """
        words = ["scontrol", "write", "batch_script", str(job), "-"]
        script = self._run(words, min(seconds, self.timeout))
        if not script:
            raise UnavailableError("scontrol write batch_script: printed nothing")
        return script

    def sinfo(self) -> bytes:
        form = "Partition:|,NodeList:|,StateComplete:|"
        return self._run(["sinfo", "--all", "--noheader", "--exact", "--Format", form])

    def version(self) -> str:
        return self._run(["squeue", "--version"]).decode(errors="replace").strip()

    def _run(self, words: Sequence[str], timeout: float | None = None) -> bytes:
        program = str(Path(self.folder, words[0])) if self.folder else words[0]
        try:
            return child.run(
                [program, *words[1:]],
                timeout=self.timeout if timeout is None else timeout,
                output=MAX_OUTPUT,
                environment={**os.environ, "TZ": "UTC", "SLURM_TIME_FORMAT": "standard"},
            )
        except OSError as error:
            reason = error.strerror or str(error)
            raise UnavailableError(f"{words[0]}: {reason}") from None


def _local(nanoseconds: int) -> str:
    return datetime.fromtimestamp(nanoseconds // 10**9, UTC).strftime("%Y-%m-%dT%H:%M:%S")
