"""The text of ``sinfo``: nodes, their states and partitions.

sinfo prints groups: the nodes of one partition with equal values in the requested columns. A node
of several partitions is in several groups, and so is a partition whose nodes differ. Cells are
separated by a delimiter, as with ``-o '%R|%N|%T'`` and ``-O 'NodeList:|,StateComplete:|'``.

Source: sinfo(1); ``src/sinfo/print.c`` of Slurm 22.05 to 26.05.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ccpipe.errors import DataError
from ccpipe.formats import nodelist
from ccpipe.formats.slurm.records import RejectedRow
from ccpipe.formats.slurm.table import split_header
from ccpipe.formats.slurm.values import node_states, text

MAX_NODES = 200_000
REASON_LAST = ("reason", "")
"""The last columns of a row whose last cell, the reason, is followed by a delimiter."""


class Node(NamedTuple):
    """A node, its states, and why it is in them."""

    name: str
    states: tuple[str, ...]
    """In capitals, the state followed by its flags: ``DOWN``, ``DRAIN``, ``NOT_RESPONDING``."""
    reason: str = ""
    """Why it is down or drained; empty without a reason."""


class Partition(NamedTuple):
    """A partition and its nodes."""

    name: str
    node_list: str | None
    """None for a partition without nodes."""


@dataclass(slots=True)
class Cluster:
    """The distinct nodes and partitions of an output."""

    nodes: list[Node] = field(default_factory=list)
    partitions: list[Partition] = field(default_factory=list)
    rejected: list[RejectedRow] = field(default_factory=list)


def read_sinfo(payload: bytes, *, columns: Sequence[str] | None = None) -> Cluster:
    """Read a whole output, delimited by bars; without `columns`, the first line is the header.

    Raises DataError without a column of nodes or partitions.
    """
    lines = payload.decode("utf-8", "replace").removesuffix("\n").split("\n")
    first, delimiter = 1, "|"
    if columns is None:
        if lines == [""]:
            return Cluster()
        columns, delimiter = split_header(lines.pop(0))
        first = 2
    if not {"nodelist", "partition"}.intersection(columns):
        raise DataError(f"no column NODELIST or PARTITION in {', '.join(columns)!r:.200}")
    groups = _Groups()
    for number, line in enumerate(lines, first):
        try:
            if line:
                groups.add(_cells(line, columns, delimiter))
        except DataError as error:
            groups.rejected.append(RejectedRow(number, str(error), line.encode()))
    return groups.cluster()


def _cells(line: str, columns: Sequence[str], delimiter: str) -> dict[str, str]:
    cells = line.split(delimiter)
    surplus = len(cells) - len(columns)
    if surplus > 0 and columns[-2:] == REASON_LAST:  # a reason is any text
        cells[-2 - surplus : -1] = [delimiter.join(cells[-2 - surplus : -1])]
    if len(cells) != len(columns):
        raise DataError(f"expected {len(columns)} fields, got {len(cells)}")
    return dict(zip(columns, map(str.strip, cells), strict=True))


class _Groups:
    """Merges groups of nodes."""

    def __init__(self) -> None:
        self.nodes: dict[str, tuple[str, ...]] = {}
        self.reasons: dict[str, str] = {}
        self.partitions: dict[str, str | None] = {}
        self.members: dict[str, dict[str, None]] = {}
        self.rejected: list[RejectedRow] = []

    def add(self, row: dict[str, str]) -> None:
        node_list = text(row.get("nodelist", ""))
        names = nodelist.expand(node_list) if node_list else []
        state = row.get("statecomplete") or row.get("state#2") or row.get("state", "")
        states = node_states(state)
        if len(self.nodes) + len(names) > MAX_NODES and len({*self.nodes, *names}) > MAX_NODES:
            raise DataError(f"more than {MAX_NODES} nodes")
        for name in names:
            self.nodes[name] = states or self.nodes.get(name, ())
        if (reason := row.get("reason", "")) and reason != "none":
            self.reasons.update(dict.fromkeys(names, reason))
        partition = (text(row.get("partition", "")) or "").removesuffix("*")
        if partition:
            members = self.members.setdefault(partition, {})
            members.update(dict.fromkeys(names))
            if self.partitions.setdefault(partition, node_list) != node_list:
                self.partitions[partition] = ",".join(nodelist.compress(members)) or None

    def cluster(self) -> Cluster:
        return Cluster(
            [Node(name, states, self.reasons.get(name, "")) for name, states in self.nodes.items()],
            [Partition(*item) for item in self.partitions.items()],
            self.rejected,
        )
