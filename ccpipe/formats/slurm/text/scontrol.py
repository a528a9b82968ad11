"""The text of ``scontrol -d show job``: which CPUs and GPUs a job has on each node.

Records of ``Key=value`` pairs on several lines. Nothing is quoted, and a value that users write may
look like more keys: it ends its line. Where a key occurs twice, nobody can say which one is true,
and the record is rejected. So are records on one line, as ``-o`` prints them.

Source: scontrol(1); ``src/api/job_info.c`` of Slurm 22.05, ``src/scontrol/info_job.c`` of 23.02 to
26.05.
"""

import itertools
import re
from collections.abc import Callable, Iterator
from datetime import tzinfo
from typing import NamedTuple, TypeVar

from ccpipe.errors import DataError
from ccpipe.formats.slurm.records import Allocation, LiveJob, ParsedOutput, RejectedRow, SlurmId
from ccpipe.formats.slurm.text.columns import repaired
from ccpipe.formats.slurm.text.table import MAX_RECORD, original_bytes
from ccpipe.formats.slurm.values import TimeReader, count, job_state, megabytes, text, whole

_START = re.compile(r"^JobId=", re.MULTILINE)
_KEY = re.compile(r"(?:^| )([A-Z][A-Za-z0-9_:/]*)=")
_LINE = re.compile(r"\n {3,}(?=[A-Z][A-Za-z0-9_:/]*=)")
_FREE = frozenset({
    "JobName", "Command", "SubmitLine", "WorkDir", "AdminComment", "SystemComment", "Comment",
    "Extra", "StdErr", "StdIn", "StdOut", "Container", "CrontabSpec", "BurstBuffer",
})  # fmt: skip
"""Keys whose values users write; each ends its line."""
_REPEATED = frozenset({"Nodes", "CPU_IDs", "Mem", "GRES", "GRES_IDX"})
"""Keys that occur once for each group of nodes."""
_ADDRESS = r"[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-9a-fA-F]"
_ADDRESSES = re.compile(rf"{_ADDRESS}(?:,{_ADDRESS}){{0,63}}")


class KeyValues(NamedTuple):
    """The values of a record by key."""

    values: dict[str, str]
    groups: list[dict[str, str]]
    """Of the repeated keys, each time the first of them occurs."""

    def get(self, key: str) -> str:
        return self.values.get(key, "")

    def word(self, key: str) -> str | None:
        return text(self.get(key))


def read_jobs(payload: bytes, *, zone: tzinfo | None = None) -> ParsedOutput[LiveJob]:
    """Read the records of an output; times are those of `zone`.

    Without a zone, jobs with local times are rejected. Of the number only the job's own is read.
    """
    time = TimeReader(zone)
    reading: ParsedOutput[LiveJob] = ParsedOutput()
    for line, record in _records(payload):
        try:
            reading.records.append(_job(parse(repaired(record)), time))
        except DataError as error:
            original = original_bytes(record[:MAX_RECORD])
            reading.rejected.append(RejectedRow(line, str(error), original))
    return reading


def _records(payload: bytes) -> Iterator[tuple[int, str]]:
    whole = payload.decode("utf-8", "surrogateescape")
    starts = [found.start() for found in _START.finditer(whole)]
    line, position = 1, 0
    before = whole[: starts[0]] if starts else whole
    if before.strip() and not before.startswith("No "):  # "No jobs in the system"
        yield line, before.strip()
    for start, end in itertools.pairwise((*starts, len(whole))):
        line += whole.count("\n", position, start)
        position = start
        yield line, whole[start:end].rstrip()


def parse(record: str) -> KeyValues:
    """Read one record; raises DataError if it is none, or a key occurs twice."""
    if not record.startswith("JobId="):
        raise DataError("no record of scontrol: it does not begin with JobId=")
    if len(record) > MAX_RECORD:
        raise DataError(f"a record of more than {MAX_RECORD} bytes")
    pairs = (pair for line in _LINE.split(record) for pair in _pairs(line))
    values: dict[str, str] = {}
    groups: list[dict[str, str]] = []
    for key, value in pairs:
        if key in _REPEATED:
            if not groups or key in groups[-1]:
                groups.append({})
            groups[-1][key] = value
        elif key in values:
            raise DataError(f"{key} stands twice, so that one of them is part of a text")
        else:
            values[key] = value
    return KeyValues(values, groups)


def _pairs(line: str) -> Iterator[tuple[str, str]]:
    key, start = "", 0
    for found in _KEY.finditer(line):
        if key in _FREE:
            break
        if key:
            yield key, line[start : found.start()].strip()
        key, start = found[1], found.end()
    if key:
        yield key, line[start:].strip()


def _job(job: KeyValues, time: TimeReader) -> LiveJob:
    node_list = job.word("NodeList")
    gpus = _comment_gpus(job)
    return LiveJob(
        SlurmId(_read(job, whole, "JobId") or 0),
        state=_state(job),
        start=_read(job, time, "StartTime"),
        node_list=node_list,
        allocation=tuple(_allocation(group, gpus) for group in job.groups),
        nodes=_read(job, count, "NumNodes"),
        cpus=_read(job, count, "NumCPUs"),
        memory_per_cpu=_read(job, megabytes, "MinMemoryCPU"),
        memory_per_node=_read(job, megabytes, "MinMemoryNode"),
        req_tres=job.word("ReqTRES") or (None if node_list else job.word("TRES")),
        alloc_tres=job.word("AllocTRES") or (job.word("TRES") if node_list else None),
        oversubscribe=job.word("OverSubscribe"),
    )


_Value = TypeVar("_Value")


def _read(record: KeyValues, reader: Callable[[str], _Value], key: str) -> _Value:
    """Read a value; raises DataError that names the key."""
    try:
        return reader(record.get(key))
    except DataError as error:
        raise DataError(f"{key}: {error}") from None


def _state(job: KeyValues) -> str | None:
    if not job.get("JobState"):
        raise DataError("no JobState: the record is cut off, or on one line")
    return _read(job, job_state, "JobState")


def _comment_gpus(job: KeyValues) -> tuple[str, ...]:
    """Return the PCI addresses that a comment consists of; users write only the second one."""
    comments = (job.get("AdminComment"), job.get("Comment"))
    found = next(filter(_ADDRESSES.fullmatch, comments), "")
    return tuple(dict.fromkeys(found.split(","))) if found else ()


def _allocation(group: dict[str, str], comment_gpus: tuple[str, ...]) -> Allocation:
    return Allocation(
        node_list=group.get("Nodes", ""),
        cpu_ids=text(group.get("CPU_IDs", "")),
        memory=megabytes(group.get("Mem", "")),
        gres=text(group.get("GRES", group.get("GRES_IDX", ""))),
        comment_gpus=comment_gpus,
    )
