"""Named rules that correct what Slurm's plug-ins get wrong; none is ever applied unasked.

A profile file does not say which plug-in of which version of Slurm wrote it, so whoever reads it
has to: ``table.with_rules(CORRECTIONS["network_swapped"].apply)``. ``recognize`` says which rules
a table looks like needing.
"""

from collections.abc import Callable, Iterator

import msgspec
import numpy as np

from ccpipe.formats.slurm_profile.hdf5 import Array, Records
from ccpipe.formats.slurm_profile.series import (
    EPOCH,
    FieldKind,
    FilesystemSeries,
    NetworkSeries,
    SeriesField,
    TasksSeries,
    difference,
)
from ccpipe.formats.slurm_profile.table import Rule, Table

MEBIBYTE = 2**20
PACKETS_PER_UNIT = 65_536
"""The sysfs plug-in writes the packets divided by this into ``InMB`` and ``OutMB``."""

MAX_PACKET = 65_536
MIN_ROWS = 4
"""Fewer say nothing about the shape of a series."""
MIN_PACKET = 20
"""Bytes that one packet of InfiniBand or Ethernet can have, about."""


Starts = Array
"""Of each group of rows, the position of its first row."""


class Correction(msgspec.Struct, frozen=True):
    """One rule."""

    name: str
    series: str
    """It is meant for tables of this series."""
    fields: tuple[SeriesField, ...]
    """What it changes; other fields, and tables without these, stay as they are."""
    summary: str
    apply: Rule
    suspects: Callable[[Records], bool]
    """Whether rows look like needing it."""


def recognize(table: Table) -> list[str]:
    """Return the names of the corrections that the first rows of a table look like needing."""
    block = next(table.blocks(), None)
    if block is None:
        return []
    return [
        rule.name
        for rule in CORRECTIONS.values()
        if rule.series == table.series
        and {field.name for field in rule.fields} <= set(table.fields)
        and rule.suspects(block)
    ]


def swap_network(blocks: Iterator[Records]) -> Iterator[Records]:
    """Put bytes and packets where they belong, in files of the plug-in sysfs (all versions)."""
    for block in blocks:
        found = block.copy()
        for packets, mebibytes in (("PacketsIn", "InMB"), ("PacketsOut", "OutMB")):
            if not {packets, mebibytes} <= set(block.dtype.names or ()):
                continue
            found[packets] = _packets(block[mebibytes])
            found[mebibytes] = block[packets] / MEBIBYTE
        yield found


def _packets(values: Array) -> Array:
    scaled = np.rint(values.astype("<f8") * PACKETS_PER_UNIT)
    return np.asarray(np.clip(np.nan_to_num(scaled), 0, 2.0**63)).astype("<u8")


def _looks_swapped(block: Records) -> bool:
    packets, units = float(block["PacketsIn"].sum()), float(block["InMB"].sum())
    if not packets or not units:
        return False
    as_written = MIN_PACKET <= units * MEBIBYTE / packets <= MAX_PACKET
    swapped = MIN_PACKET <= packets / (units * PACKETS_PER_UNIT) <= MAX_PACKET
    return swapped and not as_written


def from_node_counters(blocks: Iterator[Records]) -> Iterator[Records]:
    """Take differences of Lustre's counters of the node, which Slurm 18.08 to 25.05 write.

    The first row is 0 and the second one shows what the node counted before the step began, so
    the changes in both are unknown and become 0.
    """
    first: Records | None = None
    before: Records | None = None
    names: list[str] = []
    for block in blocks:
        rows, names = block.copy(), _counters(block)
        if before is None:
            rows = rows if first is None else np.concatenate([first, rows])
            if len(rows) == 1:
                first = rows  # the second row is needed too
                continue
            for name in names:
                rows[name][0] = rows[name][1]
        yield difference(rows, names, before)
        before = rows[-1:]
    if before is None and first is not None:
        yield difference(first, names)


def from_step_counters(blocks: Iterator[Records]) -> Iterator[Records]:
    """Take differences of Lustre's counters since the step began, which Slurm 25.11 writes."""
    before: Records | None = None
    for block in blocks:
        names = _counters(block)
        found = difference(block, names, before)
        if before is None:
            for name in names:
                found[name][:1] = block[name][:1]
        before = block[-1:]
        yield found


def _counters(block: Records) -> list[str]:
    """Return the fields of a file system that a table has."""
    return [
        field.name for field in FilesystemSeries.fields if field.name in (block.dtype.names or ())
    ]


def _never_falls(block: Records) -> bool:
    return len(block) >= MIN_ROWS and all(
        bool((block[name][1:] >= block[name][:-1]).all()) for name in _counters(block)
    )


def _looks_like_node_counters(block: Records) -> bool:
    if not _never_falls(block) or any(block[field.name][0] for field in FilesystemSeries.fields):
        return False
    jump, last = float(block["Reads"][1]), float(block["Reads"][-1])
    return jump > 0 and jump > last - jump


def _looks_like_step_counters(block: Records) -> bool:
    grows = bool(block["Reads"][-1] > block["Reads"][0]) if len(block) else False
    return _never_falls(block) and grows and not _looks_like_node_counters(block)


def megahertz_to_kilohertz(blocks: Iterator[Records]) -> Iterator[Records]:
    """Turn frequencies that Slurm took from /proc/cpuinfo, in MHz, into kHz."""
    for block in blocks:
        found = block.copy()
        if "CPUFrequency" in (block.dtype.names or ()):
            found["CPUFrequency"] = np.minimum(block["CPUFrequency"], 2**53) * np.uint64(1000)
        yield found


def _looks_like_megahertz(block: Records) -> bool:
    return 0 < int(block["CPUFrequency"].max()) < 20_000  # noqa: PLR2004 - 20 GHz, or 20 MHz


CORRECTIONS = {
    rule.name: rule
    for rule in (
        Correction(
            "network_swapped",
            NetworkSeries.name,
            NetworkSeries.fields,
            "the plug-in sysfs wrote bytes as packets and packets as bytes",
            swap_network,
            _looks_swapped,
        ),
        Correction(
            "filesystem_node_counters",
            FilesystemSeries.name,
            FilesystemSeries.fields,
            "Slurm 18.08 to 25.05 wrote Lustre's counters of the node instead of changes",
            from_node_counters,
            _looks_like_node_counters,
        ),
        Correction(
            "filesystem_step_counters",
            FilesystemSeries.name,
            FilesystemSeries.fields,
            "Slurm 25.11 or later wrote counters since the step began instead of changes",
            from_step_counters,
            _looks_like_step_counters,
        ),
        Correction(
            "frequency_megahertz",
            TasksSeries.name,
            TasksSeries.fields[:1],
            "Slurm read the frequency from /proc/cpuinfo, which has MHz instead of kHz",
            megahertz_to_kilohertz,
            _looks_like_megahertz,
        ),
    )
}
"""All corrections by name."""


def find_duplicates(rows: Records) -> Array:
    """Return which rows have the same time as the row before them.

    Slurm polls once more when the last task starts and when each task ends: most real tables have
    duplicates at both ends.
    """
    flags = np.zeros(len(rows), np.bool_)
    flags[1:] = rows[EPOCH][1:] == rows[EPOCH][:-1]
    return flags


def keep_first(blocks: Iterator[Records]) -> Iterator[Records]:
    """Keep the first row of those with the same time."""
    last: int | None = None
    for block in blocks:
        keep = ~find_duplicates(block)
        keep[0] &= last is None or int(block[EPOCH][0]) != last
        last = int(block[EPOCH][-1])
        if keep.any():
            yield block[keep]


def keep_last(blocks: Iterator[Records]) -> Iterator[Records]:
    """Keep the last row of those with the same time."""
    for rows, starts in _grouped(blocks):
        yield rows[np.append(starts[1:], len(rows)) - 1]


def combine(table: Table) -> Rule:
    """Return a rule that makes one row of those with the same time.

    Changes are added up, so that none is lost. Of everything else the largest value stands: the
    extra poll of a task that ends finds memory given back and a utilization of 0.
    """
    series = table.type
    known = {name: series.field(name) for name in table.fields}

    def join(rows: Records, starts: Starts, name: str) -> Array:
        gone = series.missing(rows, name)
        values = np.where(gone, rows[name].dtype.type(0), rows[name])
        field = known[name]
        add_up = field is not None and field.kind is FieldKind.DELTA
        joined = (np.add if add_up else np.maximum).reduceat(values, starts)
        return np.where(np.logical_and.reduceat(gone, starts), rows[name][starts], joined)

    def apply(blocks: Iterator[Records]) -> Iterator[Records]:
        for rows, starts in _grouped(blocks):
            found = rows[starts]
            for name in table.fields:
                found[name] = join(rows, starts, name)
            yield found

    return apply


DUPLICATES: dict[str, Callable[[Table], Rule | None]] = {
    "keep": lambda _: None,
    "first": lambda _: keep_first,
    "last": lambda _: keep_last,
    "combine": combine,
}
"""What to do with rows of the same time, by name. ``keep`` is what sh5util does."""


def _grouped(blocks: Iterator[Records]) -> Iterator[tuple[Records, Starts]]:
    """Return blocks that end between two times, and where each time begins in them."""
    held: Records | None = None
    for block in blocks:
        rows = block if held is None else np.concatenate([held, block])
        starts = np.flatnonzero(~find_duplicates(rows))
        if len(starts) > 1:
            yield rows[: starts[-1]], starts[:-1]
        held = rows[starts[-1] :]
    if held is not None:
        yield held, np.zeros(1, np.intp)
