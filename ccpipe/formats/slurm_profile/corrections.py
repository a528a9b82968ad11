"""Named rules that correct errors of Slurm's plug-ins; none is applied by default.

A profile file does not record the plug-in and version of Slurm that wrote it, so the caller selects
the rules: ``table.with_rules(CORRECTIONS["network_swapped"].apply)``. ``recognize`` returns the
rules that a table seems to need.
"""

from collections.abc import Callable, Iterator

import msgspec
import numpy as np

from ccpipe.formats.slurm_profile.hdf5 import Array, Records
from ccpipe.formats.slurm_profile.series import (
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
"""Rows needed to judge the shape of a series."""
MIN_PACKET = 20
"""Approximate minimum bytes of an InfiniBand or Ethernet packet."""


class Correction(msgspec.Struct, frozen=True):
    """A correction rule."""

    name: str
    series: str
    """The series whose tables it applies to."""
    fields: tuple[SeriesField, ...]
    """The fields it changes; tables without them are left unchanged."""
    summary: str
    apply: Rule
    suspects: Callable[[Records], bool]
    """Whether rows seem to need it."""


def recognize(table: Table) -> list[str]:
    """Return the names of the corrections that a table seems to need, by its first rows."""
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
    """Swap bytes and packets back, in files of the plug-in sysfs (all versions)."""
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

    The first row is 0 and the second includes the node's count before the step, so the changes in
    both are unknown and become 0.
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
