"""The types of time series and their operations, one class per type.

Source: Slurm Profile Accounting Plugin API, *Data Types*, whose structure of functions for each
type is a class here; the fields are as written by Slurm 22.05 and 24.11.

========================== =====================================================
operation of the document  here
========================== =====================================================
dataset_size               ``file_type().itemsize``
create_*_datatype          ``file_type()``: one numpy type serves memory and file
init_job_series            no counterpart: numpy allocates
merge_step_series          ``merge()``
series_total               ``total()``
extract_series, _totals    ``extract``: the same for all types
========================== =====================================================
"""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import ClassVar

import msgspec
import numpy as np

from ccpipe.errors import EncodeError
from ccpipe.formats.slurm_profile.hdf5 import Array, Records

ELAPSED, EPOCH = "ElapsedTime", "EpochTime"
"""The first two fields of every table: seconds since the step's start; Unix seconds."""

INFINITE = 2**64 - 1
"""``INFINITE64``: stored by plug-ins for missing values."""
NO_VALUE = 2**64 - 2
"""``NO_VAL64``."""
INFINITE_MEBIBYTES = INFINITE // 2**20
"""17592186044415: ``INFINITE64`` bytes as MiB. No number of bytes can be larger."""

_TYPES = {int: "<u8", float: "<f8"}


class SeriesField(msgspec.Struct, frozen=True):
    """One field of a record."""

    name: str
    type: type[int] | type[float]
    unit: str = ""
    """As stored; empty for plain counts."""
    legacy: str = ""
    """Its name in files of Slurm 2.6 to 14.11."""


class FieldTotal(msgspec.Struct):
    """Totals of one field; None, and a sum of 0, without any value."""

    min: int | float | None = None
    max: int | float | None = None
    sum: int | float = 0
    count: int = 0

    @property
    def average(self) -> float | None:
        return float(self.sum) / self.count if self.count else None

    def join(self, other: "FieldTotal") -> "FieldTotal":
        return FieldTotal(
            _pick(min, self.min, other.min),
            _pick(max, self.max, other.max),
            self.sum + other.sum,
            self.count + other.count,
        )


class ProfileSeries:
    """Base class of the series types; subclasses register themselves by name."""

    name: ClassVar[str]
    """Name of the dataset, or group of datasets, in files of Slurm since 15.08."""
    legacy_name: ClassVar[str]
    """Name, or prefix of the name, of the group in files of Slurm 2.6 to 14.11."""
    fields: ClassVar[tuple[SeriesField, ...]]
    """In the order Slurm writes them, without the two times."""
    per_task: ClassVar[bool] = False
    """Whether a node has one table for each task."""

    def __init_subclass__(cls) -> None:
        SERIES[cls.name] = cls

    @classmethod
    def field(cls, name: str) -> SeriesField | None:
        """Describe a field; None if no plug-in of Slurm writes it."""
        return next((field for field in cls.fields if field.name == name), None)

    @classmethod
    def file_type(cls, fields: Sequence[SeriesField] | None = None) -> np.dtype[np.void]:
        """Return the type of a record with `fields`, by default the fields of the series."""
        chosen = cls.fields if fields is None else fields
        members = [(field.name, _TYPES[field.type]) for field in chosen]
        return np.dtype([(ELAPSED, "<u8"), (EPOCH, "<u8"), *members])

    @classmethod
    def merge(cls, samples: Records) -> Records:
        """Convert the samples of a legacy node-step file into a job's series.

        Tables of the modern plug-in are merged unchanged.
        """
        return samples

    @classmethod
    def total(
        cls, blocks: Iterable[Records], fields: Sequence[str], *, raw: bool = False
    ) -> dict[str, FieldTotal]:
        """Return minimum, maximum, sum and average of fields over a table.

        Integers are exact, however large. Floating point numbers are added in sequence, like in
        sh5util: other orders give other last digits. Missing values are skipped; with `raw` they
        count as stored.
        """
        totals = {name: FieldTotal() for name in fields}
        for block in blocks:
            for name in fields:
                values = block[name]
                if not raw and (absent := cls.missing(block, name)).any():
                    values = values[~absent]
                if len(values):
                    totals[name] = _add(totals[name], values)
        return totals

    @classmethod
    def missing(cls, records: Records, name: str) -> Array:
        """Return a mask of the missing values of a field."""
        known = cls.field(name)
        return find_missing(records[name], mebibytes=known is not None and known.unit == "MiB")


SERIES: dict[str, type[ProfileSeries]] = {}


def series_type(name: str) -> type[ProfileSeries]:
    """Return the type of that name; for an unknown name, a type without fields."""
    return SERIES.get(name, _Unknown)


class _Unknown(ProfileSeries):
    name = ""
    legacy_name = ""
    fields = ()


del SERIES[""]


class EnergySeries(ProfileSeries):
    """Power of a node. Plug-ins name their fields: ``NodePower``, ``GPU0Power``, ``Energy``."""

    name = "Energy"
    legacy_name = "Energy"
    fields = (SeriesField("Power", int, "W", legacy="Power"),)

    @classmethod
    def field(cls, name: str) -> SeriesField | None:
        """Describe any sensor's power, the joules of the xcc plug-in, and the legacy frequency."""
        if name == "Energy":
            return SeriesField(name, int, "J")
        if name == "CPUFrequency":
            return SeriesField(name, int, "kHz", legacy="CPU_Frequency")
        return SeriesField(name, int, "W", legacy=name) if name.endswith("Power") else None


class FilesystemSeries(ProfileSeries):
    """Lustre traffic of a node: changes or counters, see ``corrections``."""

    name = "Filesystem"
    legacy_name = "Lustre"
    fields = (
        SeriesField("Reads", int, legacy="Reads"),
        SeriesField("ReadMB", float, "MiB", legacy="Megabytes_Read"),
        SeriesField("Writes", int, legacy="Writes"),
        SeriesField("WriteMB", float, "MiB", legacy="Megabytes_Write"),
    )

    @classmethod
    def merge(cls, samples: Records) -> Records:
        return subtract_first(samples, [field.name for field in cls.fields])


class NetworkSeries(ProfileSeries):
    """InfiniBand traffic of a node; swapped by the sysfs plug-in, see ``corrections``."""

    name = "Network"
    legacy_name = "Network"
    fields = (
        SeriesField("PacketsIn", int, legacy="Packets_In"),
        SeriesField("PacketsOut", int, legacy="Packets_Out"),
        SeriesField("InMB", float, "MiB", legacy="Megabytes_In"),
        SeriesField("OutMB", float, "MiB", legacy="Megabytes_Out"),
    )


class TasksSeries(ProfileSeries):
    """Resource use of a task's processes. The two GPU fields exist since Slurm 23.02."""

    name = "Tasks"
    legacy_name = "Task"
    per_task = True
    fields = (
        SeriesField("CPUFrequency", int, "kHz", legacy="CPU_Frequency"),
        SeriesField("CPUTime", float, "s", legacy="CPU_Time"),
        SeriesField("CPUUtilization", float, "%", legacy="CPU_Utilization"),
        SeriesField("GPUMemMB", int, "MiB"),
        SeriesField("GPUUtilization", float, "%"),
        SeriesField("RSS", int, "KiB", legacy="RSS"),
        SeriesField("VMSize", int, "KiB", legacy="VM_Size"),
        SeriesField("Pages", int, legacy="Pages"),
        SeriesField("ReadMB", float, "MiB", legacy="Read_Megabytes"),
        SeriesField("WriteMB", float, "MiB", legacy="Write_Megabytes"),
    )

    @classmethod
    def merge(cls, samples: Records) -> Records:
        """Take differences of legacy counters, and compute the utilization from them."""
        found = difference(samples, ["CPUTime", "ReadMB", "WriteMB"])
        found["CPUUtilization"] = 0.0
        seconds = np.diff(samples[EPOCH].astype("<i8"))
        later = found["CPUUtilization"][1:]
        np.divide(100.0 * found["CPUTime"][1:], seconds, out=later, where=seconds > 0)
        return found


def subtract_first(samples: Records, names: Iterable[str]) -> Records:
    """Subtract the first sample from fields; values below the first become 0."""
    found = samples.copy()
    if len(samples):
        for name in names:
            first = samples[name][0]
            found[name] = np.maximum(samples[name], first) - first
    return found


def difference(samples: Records, names: Iterable[str], before: Records | None = None) -> Records:
    """Return samples with fields as changes since the previous sample.

    A counter that decreased was reset, so its value is the change. `before` is the row before the
    first one; without it the first change is 0.
    """
    found = samples.copy()
    if len(samples):
        start = samples[:1] if before is None else before[-1:]
        for name in names:
            old = np.concatenate([start[name], samples[name][:-1]])
            new = samples[name]
            found[name] = np.where(new >= old, new - np.minimum(old, new), new)
    return found


def make_fields(pairs: Iterable[tuple[str, type[int] | type[float]]]) -> tuple[SeriesField, ...]:
    """Create fields from names and types, like Slurm's ``create_dataset``.

    Raises EncodeError for duplicate names, and names not supported by HDF5 or sh5util.
    """
    fields = tuple(SeriesField(name, kind) for name, kind in pairs)
    names = [ELAPSED, EPOCH, *(field.name for field in fields)]
    for name in names:
        if not name or not name.isprintable() or "," in name or names.count(name) > 1:
            raise EncodeError(f"{name!r:.80} cannot name a field of a table")
    return fields


def find_missing(values: Array, *, mebibytes: bool) -> Array:
    """Return a mask of the missing values.

    Missing are the sentinels, also as floating point numbers (1.8446744073709552e19), non-finite
    numbers, and in a field of `mebibytes` values above 2^64 bytes: Slurm 23.02 and later do not set
    ``GPUMemMB`` in the first record of a task.
    """
    if values.dtype.kind == "f":
        limit = float(INFINITE_MEBIBYTES if mebibytes else NO_VALUE)
        missing: Array = ~(values < limit) | ~np.isfinite(values)
        return missing if mebibytes else missing | (values == float(INFINITE_MEBIBYTES))
    if mebibytes:
        return np.asarray(values >= np.uint64(INFINITE_MEBIBYTES))
    return np.asarray((values >= np.uint64(NO_VALUE)) | (values == np.uint64(INFINITE_MEBIBYTES)))


def _add(total: FieldTotal, values: Array) -> FieldTotal:
    if values.dtype.kind == "f":
        chain = np.concatenate([[float(total.sum)], values.astype("<f8")])
        added: int | float = float(np.add.accumulate(chain)[-1])
    else:
        added = int(total.sum) + _exact_sum(values)
    low, high = values.min().item(), values.max().item()
    return FieldTotal(
        _pick(min, total.min, low), _pick(max, total.max, high), added, total.count + len(values)
    )


def _exact_sum(values: Array) -> int:
    """Add 64-bit integers without overflow."""
    wide = values.astype("<u8")
    half = np.uint64(32)
    return (int((wide >> half).sum()) << 32) + int((wide & np.uint64(2**32 - 1)).sum())


def _pick(
    choose: Callable[[int | float, int | float], int | float],
    first: float | None,
    second: float | None,
) -> int | float | None:
    if first is None or second is None:
        return second if first is None else first
    return math.nan if first != first or second != second else choose(first, second)  # noqa: PLR0124
