"""``Accounting``: one accounting record in fixed units, whichever program wrote it."""

import enum
import re
from typing import Annotated, Any

import msgspec

from ccpipe.formats.gridengine.category import Requests, parse_category
from ccpipe.formats.gridengine.outcome import Outcome, classify, is_last_record, meaning

Amount = Annotated[int, msgspec.Meta(gt=-(2**63), lt=2**63 - 1)] | float | str
"""A usage value as written; only custom containers contain texts."""


class Variant(enum.StrEnum):
    """The format of a record; see docs/gridengine/jobs.md."""

    CLASSIC_43 = "classic-43"
    """Colons, SGE 5.3 to 6.1."""
    CLASSIC_45 = "classic-45"
    """Colons, SGE 6.2, Son of Grid Engine, OCS with ``old_accounting``."""
    UNIVA_52 = "univa-52"
    """Colons and milliseconds, Univa 8.2."""
    UNIVA_54 = "univa-54"
    """Univa 8.3 and 8.4."""
    UNIVA_55 = "univa-55"
    """Univa 8.5 and 8.6."""
    JSONL_90 = "jsonl-9.0"
    """JSON lines of OCS 9.0.0 to 9.0.5, whose second container is ``usage.usage``."""
    JSONL = "jsonl"
    """JSON lines of OCS from 9.0.6 on."""


class Origin(msgspec.Struct, frozen=True, gc=False):
    """Where a record was read. File and offset identify it; its content does not."""

    file: str = ""
    """The file's id, given by the caller: a path, or a hash that survives rotation."""
    offset: int = 0
    """Bytes before the record's line."""
    line: int = 0
    """The line's number in the file, from 1."""
    variant: Variant = Variant.CLASSIC_45


NOWHERE = Origin()
NO_DATA = 2.0**64
"""What OCS before 9.1.4 can write for an unknown ``maxrss`` (systemd's mark)."""


class Accounting(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One run of a job, array task or PE task.

    Times are nanoseconds since the epoch, None for 0 in the file. ``NONE`` and missing keys are
    None too. The names are the manual's.
    """

    job_number: int
    task_number: int = 0
    """0 if the job is no array."""
    owner: str = ""
    group: str = ""
    account: str = ""
    qname: str = ""
    hostname: str = ""
    project: str | None = None
    department: str = ""
    granted_pe: str | None = None
    slots: int = 0
    """Slots of the whole job, also in the record of a PE task."""
    arid: int = 0
    job_name: str = ""
    priority: int = 0
    """The nice value of the queue; not what ``qsub -p`` asked for."""
    submission_time: int | None = None
    start_time: int | None = None
    end_time: int | None = None
    ar_submission_time: int | None = None
    submit_cmd_line: str | None = None
    pe_taskid: str | None = None
    """Of a task of a tightly integrated parallel job, such as ``1.node07``."""
    category: str = ""
    failed: int = 0
    exit_status: int = 0
    """128 + signal where a signal ended it; -1 in intermediate records of the reporting file."""
    deleted_by: str | None = None
    """``user@host``, ``execd@host`` or ``qmaster@host``."""
    usage: dict[str, dict[str, Amount]] = {}
    """``rusage``, ``eusage`` and custom containers, whole, in the writer's units.

    Seconds, but ``ru_maxrss`` in KiB, ``maxvmem``, ``maxrss`` and ``maxpss`` in bytes, ``mem`` in
    GiB·s and ``io`` in GiB. (Univa's ``ru_wallclock`` was brought to seconds.)
    """
    extra: dict[str, Any] = {}
    """The rest of the line: unknown JSON keys, Univa's additional fields."""
    reported: int | None = None
    """Time of the line in the reporting file; None in an accounting file."""
    origin: Origin = NOWHERE

    def amount(self, container: str, name: str) -> float:
        """Return a usage value; 0 if it is missing or a text."""
        value = self.usage.get(container, {}).get(name, 0)
        return value if isinstance(value, int | float) else 0

    @property
    def wallclock(self) -> float:
        """Seconds from start to end, ``ru_wallclock``: what qacct sums."""
        return self.amount("rusage", "ru_wallclock")

    @property
    def cpu(self) -> float:
        """Seconds of CPU time."""
        return self.amount("eusage", "cpu")

    @property
    def maxrss(self) -> float:
        """Peak resident memory in bytes: ``maxrss``, or ``ru_maxrss`` where that is unknown."""
        measured = self.amount("eusage", "maxrss")
        if 0 < measured < NO_DATA:
            return measured
        return 1024 * self.amount("rusage", "ru_maxrss")

    @property
    def maxvmem(self) -> float:
        """Peak virtual memory in bytes; 0 if it was not measured."""
        return self.amount("eusage", "maxvmem")

    @property
    def requests(self) -> Requests:
        """The job's requests, from its category."""
        return parse_category(self.category)

    @property
    def outcome(self) -> Outcome:
        """The class of how the run ended."""
        return classify(
            failed=self.failed,
            exit_status=self.exit_status,
            started=self.start_time is not None,
            deleted_by=self.deleted_by or "",
            wallclock=self.wallclock,
            limit=self.requests.h_rt,
        )

    @property
    def failure(self) -> str:
        """The manual's text for the code `failed`."""
        return meaning(self.failed)

    @property
    def is_final(self) -> bool:
        """Whether the job ends with this record, rather than running again."""
        return is_last_record(self.failed, started=self.start_time is not None)

    @property
    def is_intermediate(self) -> bool:
        """Whether the job still runs: usage since midnight, from the reporting file."""
        return self.exit_status == -1


def clean(text: str) -> str:
    """Replace bytes that are not UTF-8 with U+FFFD, which JSON requires."""
    return _SURROGATE.sub("\ufffd", text)


_SURROGATE = re.compile("[\ud800-\udfff]")
