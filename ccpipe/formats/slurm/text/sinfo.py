"""The text of ``sinfo``: which nodes there are, in which states and partitions.

Any of its columns, with a delimiter (``-o '%R|%N'``, ``-O 'NodeList:|,StateComplete:|'``) or
aligned by blanks as sinfo prints by itself, with ``-N``, ``-l``, ``-s`` and ``-R``.

>>> payload = b"PARTITION|NODELIST|STATE\\nnormal*|c[1-2]|idle\\ndevel|c2|idle\\n"
>>> cluster = read(payload)
>>> [(node.name, node.states, node.partitions) for node in cluster.nodes]
[('c1', ('IDLE',), ('normal',)), ('c2', ('IDLE',), ('normal', 'devel'))]
>>> [(partition.name, partition.is_default) for partition in cluster.partitions]
[('normal', True), ('devel', False)]

``HOSTNAMES`` is what a node calls itself; only ``NODELIST`` names it as Slurm does.

Source: sinfo(1); ``src/sinfo/print.c`` of Slurm 22.05 to 26.05.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import tzinfo
from typing import Any

import msgspec

from ccpipe.errors import DataError
from ccpipe.formats import nodelist
from ccpipe.formats.slurm.cluster import Cluster, ClusterBuilder
from ccpipe.formats.slurm.reading import RejectedRecord
from ccpipe.formats.slurm.records import Node, Partition
from ccpipe.formats.slurm.states import node_states
from ccpipe.formats.slurm.text.columns import repaired
from ccpipe.formats.slurm.text.table import (
    MAX_RECORD,
    Header,
    RowSplitter,
    original_bytes,
    split_header,
    unique,
)
from ccpipe.formats.slurm.timestamp import TimeReader
from ccpipe.formats.slurm.values import (
    count,
    duration,
    fraction,
    free_text,
    megabytes,
    text,
    user_id,
    whole,
)

FREE = frozenset({"reason", "comment", "extra"})
"""Columns whose texts may hold the delimiter and newlines."""

Row = Mapping[str, str]
"""A row's cells by the lower-case name of their column."""


def read(
    payload: bytes,
    *,
    columns: Sequence[str] | None = None,
    delimiter: str | None = None,
    zone: tzinfo | None = None,
) -> Cluster:
    """Read a whole output.

    Without `columns` the first line names them. Without a `delimiter` it is the first character of
    that line that no name holds; where there is none, blanks. Local times are those of `zone`.

    Raises
    ------
    DataError
        if the columns name neither nodes nor partitions.

    """
    builder, rejected = ClusterBuilder(), list[RejectedRecord]()
    time = TimeReader(zone)
    for line, row in _rows(payload, columns, delimiter, rejected):
        try:
            partition = _partition(row)
            builder.add(_nodes(row, partition, time), partition)
        except DataError as error:
            original = original_bytes((delimiter or "|").join(row.values()))
            rejected.append(RejectedRecord(line, str(error), original))
    cluster = builder.build(rejected)
    if not any(partition.is_default for partition in cluster.partitions):  # of %R none is marked
        cluster.partitions = [
            msgspec.structs.replace(partition, is_default=None) for partition in cluster.partitions
        ]
    return cluster


def _nodes(row: Row, partition: Partition | None, time: TimeReader) -> list[Node]:
    """Make the nodes of a row."""
    names = text(row.get("nodelist", ""))
    if names is None:
        return []
    expanded = nodelist.expand(names)
    known = {**_node(row, time), **(_of_one_node(row) if len(expanded) == 1 else {})}
    partitions = (partition.name,) if partition else ()
    return [Node(name=name, partitions=partitions, **known) for name in expanded]


def _rows(
    payload: bytes,
    columns: Sequence[str] | None,
    delimiter: str | None,
    rejected: list[RejectedRecord],
) -> Iterator[tuple[int, Row]]:
    """Yield the rows with their line numbers."""
    rest, first = payload, 1
    if columns is None:
        line, rest, first = _header_line(payload)
        if not line:
            return
        if delimiter is None and _is_aligned(line):
            yield from _aligned_rows(line, rest, first, rejected)
            return
        names, delimiter = split_header(line, delimiter)
    else:
        names, delimiter = unique(name.lower() for name in columns), delimiter or "|"
    _require(names)
    splitter = RowSplitter(Header(names, delimiter, FREE, _FITS), line=first)
    block = splitter.feed(rest, is_last=True)
    rejected += block.rejected
    for number, row in zip(block.lines, zip(*block.columns, strict=True), strict=True):
        yield number, dict(zip(names, map(_clean, row), strict=True))


def _clean(cell: str) -> str:
    cell = cell.strip()
    return cell if cell.isascii() else repaired(cell)


def _require(names: Sequence[str]) -> None:
    if not {"nodelist", "partition"}.intersection(names):
        raise DataError(f"no column NODELIST or PARTITION in {', '.join(names)!r:.200}")


def _header_line(payload: bytes) -> tuple[str, bytes, int]:
    """Return the line of names, what follows it, and that line's number; ``-l`` prints a date."""
    line, _, rest = payload.partition(b"\n")
    number = 2
    if b"PARTITION" not in line and b"NODELIST" not in line:
        following, _, after = rest.partition(b"\n")
        if b"NODELIST" in following:
            line, rest, number = following, after, 3
    if len(line) > MAX_RECORD:
        raise DataError(f"no line end in the first {MAX_RECORD} bytes")
    return line.decode("utf-8", "replace"), rest, number


def _is_aligned(line: str) -> bool:
    """Whether blanks alone stand between the names."""
    return not any(character in line for character in "|,;\t\x1f") and " " in line.strip()


def _aligned_rows(
    header: str, rest: bytes, first: int, rejected: list[RejectedRecord]
) -> Iterator[tuple[int, Row]]:
    """Yield the rows of a table whose columns are aligned by blanks."""
    names = unique(name.lower() for name in header.split())
    _require(names)
    for number, line in enumerate(rest.decode("utf-8", "replace").splitlines(), first):
        last = len(names) - 1
        cells = line.rsplit(None, last) if names[0] == "reason" else line.split(None, last)
        if len(cells) < last:  # only the list of nodes may be missing
            if cells:
                reason = f"{len(cells)} fields where the header has {len(names)}"
                rejected.append(RejectedRecord(number, reason, line.encode()))
            continue
        yield number, dict(zip(names, map(str.strip, (*cells, "")), strict=False))


def _partition(row: Row) -> Partition | None:
    name = text(row.get("partition", ""))
    if name is None:
        return None
    shown = [name, row.get("partition#2", "")]
    return Partition(
        name=name.removesuffix("*"),
        node_list=text(row.get("nodelist", "")),
        state=_STATES.get(row.get("avail", "")),
        is_default=any(each.endswith("*") for each in shown),
        max_time=_get(row, "timelimit", duration),
        default_time=_get(row, "defaulttime", duration),
        priority_tier=_get(row, "prio_tier", whole),
        priority_job_factor=_get(row, "prio_job_factor", whole),
        oversubscribe=_get(row, "oversubscribe", text),
        allow_groups=None if row.get("groups") == "all" else _get(row, "groups", text),
    )


_STATES = {
    "up": "UP", "down": "DOWN", "drain": "DRAIN", "inact": "INACTIVE", "inactive": "INACTIVE",
}  # fmt: skip


def _node(row: Row, time: TimeReader) -> dict[str, Any]:
    """Read what the nodes of a group have in common."""
    state = row.get("statecomplete") or row.get("state#2") or row.get("state", "")
    sockets, cores, threads = (*row.get("s:c:t", "").split(":"), "", "", "")[:3]
    user = _get(row, "user", text)
    return {
        "states": node_states(state),
        "reason": _get(row, "reason", _reason),
        "reason_user": user_id(user)[0] if user else None,
        "reason_time": _get(row, "timestamp", time),
        "cpus": _get(row, "cpus", _same),
        "sockets": _same(row.get("sockets", sockets)),
        "cores_per_socket": _same(row.get("cores", cores)),
        "threads_per_core": _same(row.get("threads", threads)),
        "memory": _get(row, "memory", _same_megabytes),
        "tmp_disk": _get(row, "tmp_disk", _same_megabytes),
        "weight": _get(row, "weight", _same),
        "features": _names(row.get("avail_features", "")),
        "active_features": _names(row.get("active_features", "")),
        "gres": _get(row, "gres", text),
        "gres_used": _get(row, "gres_used", text),
        "version": _get(row, "version", text),
        "comment": _get(row, "comment", free_text),
    }


def _of_one_node(row: Row) -> dict[str, Any]:
    """Read what sinfo sums or spans over the nodes of a group, and so says of a single one only."""
    used = row.get("cpus(a/i/o/t)", "").partition("/")[0]
    return {
        "hostname": _get(row, "hostnames", text),
        "address": _get(row, "node_addr", text),
        "alloc_cpus": count(used),
        "cpu_load": _get(row, "cpu_load", fraction),
        "alloc_memory": _get(row, "allocmem", megabytes),
        "free_memory": _get(row, "free_mem", megabytes),
    }


def _get(row: Row, column: str, reader: Any) -> Any:
    """Read a cell; None if the column is missing."""
    cell = row.get(column)
    if cell is None:
        return None
    try:
        return reader(cell)
    except DataError as error:
        raise DataError(f"{column}: {error}") from None


def _same(cell: str) -> int | None:
    """Read a number; of ``4+`` and ``4-8`` only the minimum is known: None."""
    return None if "+" in cell or "-" in cell else count(cell)


def _same_megabytes(cell: str) -> int | None:
    return None if "+" in cell or "-" in cell else megabytes(cell)


def _reason(cell: str) -> str | None:
    return None if cell == "none" else free_text(cell)


def _names(cell: str) -> tuple[str, ...]:
    return tuple(cell.split(",")) if text(cell) else ()


def _fits_nodes(cell: str) -> None:
    names = text(cell.strip())
    if names is not None:
        nodelist.parse(names)


def _fits_states(cell: str) -> None:
    node_states(cell.strip())


_FITS = {"nodelist": _fits_nodes, "state": _fits_states, "statecomplete": _fits_states}
"""What distinguishes the columns beside a free text from it."""
