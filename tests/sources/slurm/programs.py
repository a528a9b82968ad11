"""A directory of programs that print files, in place of Slurm's, which most machines lack."""

from collections.abc import Sequence
from pathlib import Path

from ccpipe.sources.slurm.poll import END, SACCT_COLUMNS, SEPARATOR

SCRIPT = """#!/bin/sh
directory=$(dirname "$0")
echo "$(basename "$0") $* TZ=$TZ${SLURM_CONF:+ SLURM_CONF=$SLURM_CONF}" >> "$directory/calls"
output="$directory/$(basename "$0").out"
[ "$1" = write ] && output="$directory/script.$3"
[ -e "$output" ] || { echo down >&2; exit 1; }
cat "$output"
"""
NAMES = ("sacct", "squeue", "scontrol", "sinfo")
TIMES = {"submit": "2026-11-20T10:00:00", "start": "2026-11-20T10:01:00"}


class Programs:
    """Slurm's commands, each printing what it is given, or failing."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir()
        for name in NAMES:
            path = directory / name
            path.write_text(SCRIPT)
            path.chmod(0o755)
            self.set(name, "")

    def set(self, name: str, output: str | None) -> None:
        path = self.directory / f"{name}.out"
        if output is None:
            path.unlink()
        else:
            path.write_text(output)

    def set_script(self, job: int, script: bytes) -> None:
        (self.directory / f"script.{job}").write_bytes(script)

    def set_sacct(self, *rows: str) -> None:
        self.set("sacct", "".join(f"{row}\n" for row in rows))

    def set_squeue(self, *jobs: str) -> None:
        self.set("squeue", "".join(f"{job}{END}\n" for job in jobs))

    def calls(self) -> list[str]:
        path = self.directory / "calls"
        lines = path.read_text().rstrip("\n").split("\n") if path.exists() else []
        path.unlink(missing_ok=True)
        return lines


def sacct_row(job: str, state: str, **cells: str) -> str:
    """Return a row of sacct; `cells` by lower-case names of columns."""
    values = {
        "jobidraw": job, "jobid": job, "user": "alice", "state": state, "jobname": "a",
        "submit": TIMES["submit"], "start": TIMES["start"], "end": "Unknown", "nodelist": "c1",
        "dbindex": "1", **cells,
    }  # fmt: skip
    return SEPARATOR.join(values.get(name.lower(), "") for name in SACCT_COLUMNS)


def squeue_job(job: str, state: str, *, raw: str = "", priority: int = 1, **cells: str) -> str:
    is_pending = state == "PENDING"
    cell = {
        "submit": TIMES["submit"],
        "start": "N/A" if is_pending else TIMES["start"],
        "end": "N/A",
        "nodes": "" if is_pending else "c1",
        **cells,
    }
    values: Sequence[str] = (
        str(priority), job, raw or job, state, "alice", "1000", "physics", "normal", "10:00",
        cell["submit"], cell["start"], cell["end"], cell["nodes"], "1", "2", "(null)", "a", "OK",
        cell.get("reason", "Priority" if is_pending else "None"),
    )  # fmt: skip
    return SEPARATOR.join(values)


def scontrol_job(job: str, *, cpus: str = "0-1", gres: str = "", batch: int = 1) -> str:
    return (
        f"JobId={job} JobName=a\n   UserId=alice(1000) GroupId=alice(1000)\n"
        f"   Requeue=1 Restarts=0 BatchFlag={batch} Reboot=0 ExitCode=0:0\n"
        f"   JobState=RUNNING Reason=None\n   SubmitTime={TIMES['submit']}\n"
        f"   StartTime={TIMES['start']} EndTime=Unknown\n   NodeList=c1\n   NumNodes=1 NumCPUs=2\n"
        f"   TRES=cpu=2,node=1\n     Nodes=c1 CPU_IDs={cpus} Mem=600 GRES={gres}\n"
        f"   OverSubscribe=OK\n\n"
    )
