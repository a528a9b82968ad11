"""Slurm's accounting: the text of ``sacct -P`` and ``sstat -P``, and the JSON of sacct.

Any columns in any order, with or without a line of names; the cells of those that no field of
``SacctRow`` reads are in its ``other``. Ask Slurm for ``SLURM_TIME_FORMAT=%s``, and for a
delimiter that no text holds.

Source: sacct(1) and sstat(1); ``src/sacct/sacct.c`` and ``print.c`` of Slurm 20.11 to 26.05.
"""

import itertools
from codecs import BOM_UTF8
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import tzinfo
from typing import Any

import msgspec

from ccpipe.formats.files import ReadableStream, read_piece
from ccpipe.formats.slurm.json import read_json
from ccpipe.formats.slurm.records import ParsedOutput, SacctRow, SlurmId
from ccpipe.formats.slurm.text.columns import Columns, FieldSpec, TableReader
from ccpipe.formats.slurm.text.table import Fits
from ccpipe.formats.slurm.values import (
    SECOND,
    TimeReader,
    cancelled_by,
    count,
    decimal,
    duration,
    exit_code,
    job_state,
    minutes,
    requested_memory,
    text,
    volume,
    whole,
)

TIMES = ("submit", "start", "end")
FREE = (
    "stdin", "stdout", "stderr", "extra", "constraints", "comment", "admincomment",
    "systemcomment", "submitline", "workdir", "container",
)  # fmt: skip
"""Columns of free text that no field reads."""
FITS: dict[str, Fits] = {
    "jobid": SlurmId.read,
    "jobidraw": SlurmId.read,
    "derivedexitcode": exit_code,
    **dict.fromkeys(("dbindex", "restarts", "maxrsstask"), whole),
    **dict.fromkeys(("planned", "reserved"), duration),
    **dict.fromkeys(("avepages", "maxpages", "maxdiskread", "maxdiskwrite"), volume),
}
"""What distinguishes columns from free text beside them, of those that no field reads alone."""


def _part(read: Callable[[str], tuple[Any, Any] | None], index: int) -> Callable[[str], Any]:
    """Return what reads one of the two values that a cell holds."""

    def read_part(cell: str) -> Any:
        found = read(cell)
        return found[index] if found else None

    return read_part


def _label(cell: str) -> str | None:
    return cell or None


def fields(time: TimeReader) -> list[FieldSpec]:
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
        *(FieldSpec(name, (name,), time, varies=True, read_column=time.column) for name in TIMES),
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
    """Reads the rows of sacct or sstat as their bytes come, in bounded memory."""

    def __init__(
        self,
        *,
        columns: Sequence[str] | None = None,
        delimiter: str | None = None,
        zone: tzinfo | None = None,
    ) -> None:
        """Read rows of these `columns`, or of those that the first line names.

        Without a `delimiter` it is the first character of that line that no name holds, else
        ``|``. Local times are those of `zone`, see ``timestamp``; without one, rows that have any
        are rejected.
        """
        self._time = TimeReader(zone)
        ways = fields(self._time)
        super().__init__(
            SacctRow,
            ways,
            free=FREE,
            fits={**FITS, "eligible": self._time},
            rest="other",
            columns=columns,
            delimiter=delimiter,
        )

    def _corrected(self, records: list[SacctRow], columns: Columns) -> list[SacctRow]:
        """Choose among the times that came twice, as clocks were set back."""
        if not self._time.has_repeats:
            return records
        cells = {
            source.field.name: columns[source.places[0]]
            for source, _ in self._sources
            if source and source.field.name in TIMES
        }
        return [
            with_order(row, {name: self._time.second(texts[at]) for name, texts in cells.items()})
            for at, row in enumerate(records)
        ]


def with_order(row: SacctRow, second: Mapping[str, int | None]) -> SacctRow:
    """Choose the times of a row, of which some can also be the `second` one.

    The first choice is taken that is in order (submit, start, end) and has the elapsed
    time right; where none has, the first that is in order; where none is, the row is left.
    """
    choices = []
    for name in TIMES:
        first, other = getattr(row, name), second.get(name)
        choices.append((first,) if other is None else (first, other))
    in_order = [times for times in itertools.product(*choices) if _is_in_order(times)]
    in_order.sort(key=lambda times: not _is_elapsed(row, *times[1:]))
    if not in_order:
        return row
    return msgspec.structs.replace(row, **dict(zip(TIMES, in_order[0], strict=True)))


def _is_in_order(times: Iterable[int | None]) -> bool:
    known = [time for time in times if time is not None]
    return known == sorted(known)


def _is_elapsed(row: SacctRow, start: int | None, end: int | None) -> bool:
    if start is None or end is None or row.elapsed is None:
        return False
    return end - start == (row.elapsed + (row.suspended or 0)) * SECOND


def read_stream(
    stream: ReadableStream, *, zone: tzinfo | None = None
) -> Iterator[ParsedOutput[SacctRow]]:
    """Read ``sacct -P`` piece by piece, or ``sacct --json`` as a whole, since it is one document.

    Local times of the text are those of `zone`. Raises DataError if it is neither, and where the
    stream is damaged.
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
