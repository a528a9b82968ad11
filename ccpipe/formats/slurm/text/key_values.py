"""``Key=value`` records of ``scontrol show``, on several lines or, with ``-o``, on one.

Nothing is quoted, and a value that users write may look like more keys. On several lines it has a
line of its own, so that it is known where it ends. On one line it ends at the next key of
scontrol's own; where a key then stands twice, nobody can say which one is true, and the record is
rejected.

>>> record = parse("JobId=3 JobName=a b=c\\n   JobState=RUNNING Reason=None", JOB)
>>> record.values
{'JobId': '3', 'JobName': 'a b=c', 'JobState': 'RUNNING', 'Reason': 'None'}
"""

import itertools
import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from ccpipe.errors import DataError
from ccpipe.formats.slurm.reading import ParsedOutput, Record, RejectedRecord
from ccpipe.formats.slurm.text.columns import repaired
from ccpipe.formats.slurm.text.table import MAX_RECORD, original_bytes
from ccpipe.formats.slurm.values import text

_KEY = re.compile(r"(?:^| )([A-Z][A-Za-z0-9_:/]*)=")
_LINE = re.compile(r"\n {3,}(?=[A-Z][A-Za-z0-9_:/]*=)")


class RecordFormat(NamedTuple):
    """What the records of ``scontrol show`` for one kind of thing look like."""

    first: str
    """The key that each begins with."""
    free: frozenset[str]
    """Keys whose values users write; on several lines each ends its line."""
    known: frozenset[str] = frozenset()
    """Keys that end such a value on one line."""
    repeated: frozenset[str] = frozenset()
    """Keys that come once for each group of nodes."""


class KeyValues(NamedTuple):
    """The values of a record by key."""

    values: dict[str, str]
    groups: list[dict[str, str]]
    """Of the repeated keys, each time the first of them came."""

    def get(self, *keys: str) -> str:
        """Return the value of the first key that is there, else an empty text."""
        return next((self.values[key] for key in keys if key in self.values), "")

    def word(self, *keys: str) -> str | None:
        """Return a value; None where scontrol prints that there is none."""
        return text(self.get(*keys))


def read_records(
    payload: bytes, kind: RecordFormat, make: Callable[[KeyValues], Record]
) -> ParsedOutput[Record]:
    """Read the records of an output; those that `make` refuses are rejected."""
    reading: ParsedOutput[Record] = ParsedOutput()
    for line, record in _records(payload, kind):
        try:
            reading.records.append(make(parse(repaired(record), kind)))
        except DataError as error:
            original = original_bytes(record[:MAX_RECORD])
            reading.rejected.append(RejectedRecord(line, str(error), original))
    return reading


def _records(payload: bytes, kind: RecordFormat) -> Iterator[tuple[int, str]]:
    """Split an output where a line begins with the kind's first key."""
    whole = payload.decode("utf-8", "surrogateescape")
    starts = [found.start() for found in re.finditer(rf"^{kind.first}=", whole, re.MULTILINE)]
    line, position = 1, 0
    before = whole[: starts[0]] if starts else whole
    if before.strip() and not before.startswith("No "):  # "No jobs in the system"
        yield line, before.strip()
    for start, end in itertools.pairwise((*starts, len(whole))):
        line += whole.count("\n", position, start)
        position = start
        yield line, whole[start:end].rstrip()


def parse(record: str, kind: RecordFormat) -> KeyValues:
    """Read one record.

    Raises
    ------
    DataError
        if it does not begin with the kind's first key, or another stands twice.

    """
    if not record.startswith(f"{kind.first}="):
        raise DataError(f"no record of scontrol: it does not begin with {kind.first}=")
    if len(record) > MAX_RECORD:
        raise DataError(f"a record of more than {MAX_RECORD} bytes")
    lines = _LINE.split(record)
    pairs = (pair for line in lines for pair in _pairs(line, kind, is_alone=len(lines) == 1))
    values: dict[str, str] = {}
    groups: list[dict[str, str]] = []
    for key, value in pairs:
        if key in kind.repeated:
            if not groups or key in groups[-1]:
                groups.append({})
            groups[-1][key] = value
        elif key in values:
            raise DataError(f"{key} stands twice, so that one of them is part of a text")
        else:
            values[key] = value
    return KeyValues(values, groups)


def _pairs(line: str, kind: RecordFormat, *, is_alone: bool) -> Iterator[tuple[str, str]]:
    """Yield the keys of a line with their values."""
    key, start = "", 0
    for found in _KEY.finditer(line):
        ends = is_alone and found[1] in kind.known
        if key in kind.free and not ends:
            continue
        if key:
            yield key, line[start : found.start()].strip()
        key, start = found[1], found.end()
    if key:
        yield key, line[start:].strip()


_JOB_TEXTS = frozenset({
    "JobName", "Command", "SubmitLine", "WorkDir", "AdminComment", "SystemComment", "Comment",
    "Extra", "StdErr", "StdIn", "StdOut", "Container", "CrontabSpec", "BurstBuffer",
})  # fmt: skip
JOB = RecordFormat(
    "JobId",
    _JOB_TEXTS,
    _JOB_TEXTS
    | {
        "UserId", "GroupId", "MCS_label", "HetJobIdSet", "SLUID", "Power", "Switches",
        "BurstBufferState", "KillOInInvalidDependent", "KillOnInvalidDependent", "SpreadJob",
        "GresEnforceBind", "CpusPerTres", "MemPerTres", "TresBind", "TresFreq", "TresPerJob",
        "TresPerNode", "TresPerSocket", "TresPerTask", "MailUser", "MailType", "NtasksPerTRES",
        "SELinuxContext", "OOMKillStep", "SegmentSize", "ResvPorts", "PreemptEligibleTime",
        "PreemptTime", "SuspendTime", "GresAllowTaskSharing", "GresOneTaskPerSharing",
        "JobState", "Priority", "NodeList", "Nodes", "TRES", "ExitCode", "Account", "QOS",
        "SubmitTime", "StartTime", "EndTime", "TimeLimit", "RunTime", "Partition", "NumNodes",
        "NumCPUs", "Reason",
    },
    repeated=frozenset({"Nodes", "CPU_IDs", "Mem", "GRES", "GRES_IDX"}),
)  # fmt: skip
NODE = RecordFormat(
    "NodeName",
    frozenset({"OS", "Reason", "Comment", "Extra"}),
    frozenset({
        "RealMemory", "State", "CfgTRES", "AllocTRES", "Comment", "Extra", "InstanceId",
        "ReservationName", "TLSCertTokenSet", "Topology", "Parameters",
    }),
)  # fmt: skip
PARTITION = RecordFormat("PartitionName", frozenset())
