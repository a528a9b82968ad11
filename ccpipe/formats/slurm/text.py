"""The text of Slurm's commands about jobs: ``sacct -P``, ``sstat -P``, ``squeue`` and ``scontrol``.

The first three print tables of delimited cells: any columns in any order, with or without a header
line. squeue's default table truncates cells and is not supported. Prefer
``SLURM_TIME_FORMAT=%s``, and a delimiter that no text contains.

``scontrol -d show job`` prints a job's CPUs and GPUs on each node, as multi-line records of
``Key=value`` pairs. Nothing is quoted, and a user-written value, the last of its line, may look
like more keys. Records in which a key occurs twice are ambiguous and rejected; so are records on
one line, as printed by ``-o``.

Source: sacct(1), sstat(1), squeue(1), scontrol(1); ``src/sacct/sacct.c`` and ``print.c`` of Slurm
20.11 to 26.05; ``src/squeue/print.c`` and ``src/api/job_info.c`` of 22.05,
``src/scontrol/info_job.c`` of 23.02 to 26.05.
"""

import itertools
import re
from codecs import BOM_UTF8
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import tzinfo
from typing import Any, NamedTuple, TypeVar

import msgspec

from ccpipe.errors import DataError
from ccpipe.formats.files import ReadableStream, read_piece
from ccpipe.formats.slurm.columns import Columns, FieldSpec, TableReader, repaired
from ccpipe.formats.slurm.json import read_json
from ccpipe.formats.slurm.records import (
    Allocation,
    LiveJob,
    ParsedOutput,
    RejectedRow,
    SacctRow,
    SlurmId,
)
from ccpipe.formats.slurm.table import MAX_RECORD, CellReader, original_bytes
from ccpipe.formats.slurm.values import (
    SECOND,
    TimeReader,
    cancelled_by,
    count,
    decimal,
    duration,
    exit_code,
    job_state,
    megabytes,
    minutes,
    requested_memory,
    text,
    volume,
    whole,
)

_TIMES = ("submit", "start", "end")
_SACCT_FREE = (
    "stdin", "stdout", "stderr", "extra", "constraints", "comment", "admincomment",
    "systemcomment", "submitline", "workdir", "container",
)  # fmt: skip
"""Columns of free text that no field reads."""
_SACCT_FITS: dict[str, CellReader] = {
    "jobid": SlurmId.read,
    "jobidraw": SlurmId.read,
    "derivedexitcode": exit_code,
    **dict.fromkeys(("dbindex", "restarts", "maxrsstask"), whole),
    **dict.fromkeys(("planned", "reserved"), duration),
    **dict.fromkeys(("avepages", "maxpages", "maxdiskread", "maxdiskwrite"), volume),
}
"""Readers of columns that no field reads alone, to distinguish them from adjacent free text."""


def _part(read: Callable[[str], tuple[Any, Any] | None], index: int) -> Callable[[str], Any]:
    """Return a reader of one of the two values of a cell."""

    def read_part(cell: str) -> Any:
        found = read(cell)
        return found[index] if found else None

    return read_part


def _label(cell: str) -> str | None:
    return cell or None


def sacct_fields(time: TimeReader) -> list[FieldSpec]:
    return [
        FieldSpec("id", ("jobid", "jobidraw"), SlurmId.read, varies=True, is_required=True),
        FieldSpec("id", ("jobidraw",), SlurmId.read, varies=True, is_required=True),
        FieldSpec("id", ("jobid",), SlurmId.read, varies=True, is_required=True),
        FieldSpec("req_mem", ("reqmem",), _part(requested_memory, 0)),
        FieldSpec("req_mem_of", ("reqmem",), _part(requested_memory, 1)),
        FieldSpec("exit_code", ("exitcode",), _part(exit_code, 0)),
        FieldSpec("exit_signal", ("exitcode",), _part(exit_code, 1)),
        FieldSpec("state", ("state",), job_state),
        FieldSpec("cancelled_by", ("state",), cancelled_by),
        FieldSpec("time_limit", ("timelimitraw",), minutes),
        FieldSpec("time_limit", ("timelimit",), duration),
        FieldSpec("elapsed", ("elapsedraw",), whole),
        FieldSpec("elapsed", ("elapsed",), duration),
        FieldSpec("cpu_time", ("cputimeraw",), whole),
        FieldSpec("cpu_time", ("cputime",), duration),
        FieldSpec("alloc_cpus", ("alloccpus",), count),
        FieldSpec("alloc_cpus", ("ncpus",), count),
        FieldSpec("alloc_nodes", ("allocnodes",), count),
        FieldSpec("alloc_nodes", ("nnodes",), count),
        FieldSpec("consumed_energy", ("consumedenergyraw",), whole, varies=True),
        FieldSpec("consumed_energy", ("consumedenergy",), decimal, varies=True),
        *(FieldSpec(name, (name,), time, varies=True, read_column=time.column) for name in _TIMES),
        FieldSpec("suspended", ("suspended",), duration),
        *(FieldSpec(name, (_column(name),), duration) for name in ("min_cpu", "ave_cpu")),
        *(FieldSpec(name, (_column(name),), duration, varies=True) for name in _CPU_TIMES),
        *(FieldSpec(name, (_column(name),), volume) for name in _ROUNDED),
        *(FieldSpec(name, (_column(name),), volume, varies=True) for name in _VOLUMES),
        *(FieldSpec(name, (_column(name),), count) for name in ("req_cpus", "req_nodes")),
        *(FieldSpec(name, (_column(name),), whole) for name in _NUMBERS),
        *(FieldSpec(name, (_column(name),), text) for name in ("node_list", "layout")),
        *(FieldSpec(name, (_column(name),), _label) for name in _LABELS),
        *(FieldSpec(name, (_column(name),)) for name in _RESOURCES),
        FieldSpec("job_name", ("jobname",), is_free=True),
    ]


def _column(name: str) -> str:
    return name.replace("_", "")


_CPU_TIMES = ("system_cpu", "user_cpu", "total_cpu")
_ROUNDED = ("ave_disk_read", "ave_disk_write")
_VOLUMES = ("ave_rss", "ave_vm_size", "max_rss", "max_vm_size")
_NUMBERS = ("uid", "gid", "priority", "ntasks")
_LABELS = (
    "user", "account", "partition", "reservation", "cluster", "group", "qos", "wckey",
)  # fmt: skip
_RESOURCES = (
    "alloc_tres", "req_tres", "tres_usage_in_ave", "tres_usage_in_tot", "tres_usage_out_ave",
)  # fmt: skip


class SacctReader(TableReader[SacctRow]):
    """Incremental reader of sacct or sstat, in bounded memory."""

    def __init__(
        self,
        *,
        columns: Sequence[str] | None = None,
        delimiter: str | None = None,
        zone: tzinfo | None = None,
    ) -> None:
        """Read rows of these `columns`; by default, the first line is the header.

        The default `delimiter` is the header's first character that cannot be part of a name,
        else ``|``. Local times are in `zone`, see ``TimeReader``; without it, rows with local
        times are rejected.
        """
        self._time = TimeReader(zone)
        fields = sacct_fields(self._time)
        super().__init__(
            SacctRow,
            fields,
            free=_SACCT_FREE,
            fits={**_SACCT_FITS, "eligible": self._time},
            rest="other",
            columns=columns,
            delimiter=delimiter,
        )

    def _corrected(self, records: list[SacctRow], columns: Columns) -> list[SacctRow]:
        """Resolve ambiguous local times, which occur when clocks are set back."""
        if not self._time.has_repeats:
            return records
        cells = {
            source.field.name: columns[source.indices[0]]
            for source, _ in self._sources
            if source and source.field.name in _TIMES
        }
        return [
            with_order(row, {name: self._time.second(texts[at]) for name, texts in cells.items()})
            for at, row in enumerate(records)
        ]


def with_order(row: SacctRow, second: Mapping[str, int | None]) -> SacctRow:
    """Resolve the times of a row, some of which may instead be the `second` one.

    Takes the first combination in order (submit, start, end) that fits the elapsed time, else the
    first in order, else leaves the row unchanged.
    """
    choices = []
    for name in _TIMES:
        first, other = getattr(row, name), second.get(name)
        choices.append((first,) if other is None else (first, other))
    in_order = [times for times in itertools.product(*choices) if _is_in_order(times)]
    in_order.sort(key=lambda times: not _is_elapsed(row, *times[1:]))
    if not in_order:
        return row
    return msgspec.structs.replace(row, **dict(zip(_TIMES, in_order[0], strict=True)))


def _is_in_order(times: Iterable[int | None]) -> bool:
    known = [time for time in times if time is not None]
    return known == sorted(known)


def _is_elapsed(row: SacctRow, start: int | None, end: int | None) -> bool:
    if start is None or end is None or row.elapsed is None:
        return False
    return end - start == (row.elapsed + (row.suspended or 0)) * SECOND


def read_sacct(
    stream: ReadableStream, *, zone: tzinfo | None = None
) -> Iterator[ParsedOutput[SacctRow]]:
    """Read ``sacct -P`` in chunks, or ``sacct --json`` as a whole.

    Local times of the text are in `zone`. Raises DataError if the input is neither, or the stream
    is damaged.
    """
    piece = read_piece(stream).removeprefix(BOM_UTF8)
    if piece.lstrip()[:1] == b"{":
        whole = bytearray(piece)
        while piece := read_piece(stream):
            whole += piece
        yield read_json(bytes(whole))
        return
    reader = SacctReader(zone=zone)
    while piece:
        yield reader.feed(piece)
        piece = read_piece(stream)
    yield reader.flush()


_SQUEUE_FREE = (
    "container", "extra", "stdin", "stdout", "stderr", "nodelist(reason)", "comment",
    "admin_comment", "system_comment", "command", "work_dir", "features",
)  # fmt: skip


def _priority(*cells: str) -> int | None:
    """Read the integer among the columns of this name; another may have a fraction of 1."""
    return next((whole(cell) for cell in cells if "." not in cell), None)


def squeue_fields(time: TimeReader) -> list[FieldSpec]:
    return [
        FieldSpec("id", ("jobid", "jobid#2"), SlurmId.read, varies=True, is_required=True),
        FieldSpec("id", ("jobid",), SlurmId.read, varies=True, is_required=True),
        FieldSpec("priority", ("priority", "priority#2"), _priority),
        FieldSpec("priority", ("priority",), _priority),
        FieldSpec("state", ("state",), job_state),
        FieldSpec("state", ("st",), job_state),
        FieldSpec("time_limit", ("time_limit",), duration),
        *(
            FieldSpec(name, (f"{name}_time",), time, varies=True, read_column=time.column)
            for name in ("submit", "start", "end")
        ),
        *(FieldSpec(name, (name,), count) for name in ("nodes", "cpus", "uid")),
        *(FieldSpec(name, (name,), text) for name in _SQUEUE_WORDS),
        FieldSpec("node_list", ("nodelist",), text),
        FieldSpec("oversubscribe", ("over_subscribe",), text),
        FieldSpec("name", ("name",), is_free=True),
    ]


_SQUEUE_WORDS = ("user", "account", "partition", "reservation", "reason")


class SqueueReader(TableReader[LiveJob]):
    """Incremental reader of squeue, in bounded memory."""

    def __init__(
        self,
        *,
        columns: Sequence[str] | None = None,
        delimiter: str | None = None,
        zone: tzinfo | None = None,
    ) -> None:
        super().__init__(
            LiveJob,
            squeue_fields(TimeReader(zone)),
            free=_SQUEUE_FREE,
            fits={"jobid": SlurmId.read, "jobid#2": SlurmId.read},
            columns=columns,
            delimiter=delimiter,
        )


_START = re.compile(r"^JobId=", re.MULTILINE)
_KEY = re.compile(r"(?:^| )([A-Z][A-Za-z0-9_:/]*)=")
_LINE = re.compile(r"\n {3,}(?=[A-Z][A-Za-z0-9_:/]*=)")
_SCONTROL_FREE = frozenset({
    "JobName", "Command", "SubmitLine", "WorkDir", "AdminComment", "SystemComment", "Comment",
    "Extra", "StdErr", "StdIn", "StdOut", "Container", "CrontabSpec", "BurstBuffer",
})  # fmt: skip
"""Keys with user-written values; each is the last of its line."""
_REPEATED = frozenset({"Nodes", "CPU_IDs", "Mem", "GRES", "GRES_IDX"})
"""Keys that occur once for each group of nodes."""
_ADDRESS = r"[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-9a-fA-F]"
_ADDRESSES = re.compile(rf"{_ADDRESS}(?:,{_ADDRESS}){{0,63}}")


class KeyValues(NamedTuple):
    """The values of a record by key."""

    values: dict[str, str]
    groups: list[dict[str, str]]
    """The repeated keys of each group of nodes."""

    def get(self, key: str) -> str:
        return self.values.get(key, "")

    def word(self, key: str) -> str | None:
        return text(self.get(key))


def read_scontrol(payload: bytes, *, zone: tzinfo | None = None) -> ParsedOutput[LiveJob]:
    """Read the records of an output, with local times in `zone`.

    Without a zone, jobs with local times are rejected. Array and het numbers are not read.
    """
    time = TimeReader(zone)
    reading: ParsedOutput[LiveJob] = ParsedOutput()
    for line, record in _records(payload):
        try:
            reading.records.append(_job(parse_record(repaired(record)), time))
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


def parse_record(record: str) -> KeyValues:
    """Parse one record; raises DataError if it is malformed, or a key occurs twice."""
    if not record.startswith("JobId="):
        raise DataError("not a record of scontrol (expected JobId=…)")
    if len(record) > MAX_RECORD:
        raise DataError(f"record of more than {MAX_RECORD} bytes")
    pairs = (pair for line in _LINE.split(record) for pair in _pairs(line))
    values: dict[str, str] = {}
    groups: list[dict[str, str]] = []
    for key, value in pairs:
        if key in _REPEATED:
            if not groups or key in groups[-1]:
                groups.append({})
            groups[-1][key] = value
        elif key in values:
            raise DataError(f"{key} occurs twice, so one of them is part of a text")
        else:
            values[key] = value
    return KeyValues(values, groups)


def _pairs(line: str) -> Iterator[tuple[str, str]]:
    key, start = "", 0
    for found in _KEY.finditer(line):
        if key in _SCONTROL_FREE:
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
        raise DataError("no JobState: record truncated, or on one line")
    return _read(job, job_state, "JobState")


def _comment_gpus(job: KeyValues) -> tuple[str, ...]:
    """Return the PCI addresses in a comment; only the second comment is written by users."""
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
