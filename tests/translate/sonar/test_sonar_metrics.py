"""The tables of metrics that Sonar's fields become."""

import pytest
from msgspec.structs import fields

from ccpipe.formats.sonar import SampleGpu, SampleProcess, SampleProcessGpu, SampleSystem
from ccpipe.formats.sonar.types.primitives import Record
from ccpipe.node.sampling.collector import units
from ccpipe.translate.sonar import sonar_metrics as metrics

ROWS = (
    metrics.CPU_USED, metrics.BOOT, metrics.PERFORMANCE_STATE, *metrics.SYSTEM, *metrics.GPU,
    *metrics.DISK, *metrics.JOB_FLOATS, *metrics.JOB_INTS, *metrics.JOB_GPU,
)  # fmt: skip


def test_metric_names_are_unique() -> None:
    names = [row.name for row in ROWS]
    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    ("rows", "record"),
    [
        ((metrics.CPU_USED, metrics.BOOT, *metrics.SYSTEM), SampleSystem),
        ((metrics.PERFORMANCE_STATE, *metrics.GPU), SampleGpu),
        ((*metrics.JOB_FLOATS, *metrics.JOB_INTS), SampleProcess),
        (metrics.JOB_GPU, SampleProcessGpu),
    ],
)
def test_metric_field_exists_in_sonar_type(
    rows: tuple[metrics.SonarMetric, ...], record: type[Record]
) -> None:
    """A field that Sonar does not write would never become a metric."""
    known = {field.name for field in fields(record)}
    assert {row.field for row in rows} <= known


def test_metric_units_match_collectors() -> None:
    """Where one of ccpipe's own collectors measures the same, the unit is the same."""
    own = units()
    shared = {row.name: row.unit for row in ROWS if row.name in own}
    assert shared
    assert shared == {name: own[name] for name in shared}


def test_only_levels_survive_round_trip() -> None:
    """A counter cannot be restored from its growth."""
    assert all(row.how is metrics.Formula.LEVEL for row in ROWS if row.survives)


def test_disk_has_requests_in_progress_as_only_level() -> None:
    """All other numbers of /proc/diskstats only grow."""
    assert [at for at, row in enumerate(metrics.DISK) if row.how is metrics.Formula.LEVEL] == [
        metrics.IN_PROGRESS
    ]


def test_disk_has_fields_of_diskstats() -> None:
    """17 numbers per disk, all of the field ``stats``."""
    assert {row.field for row in metrics.DISK} == {"stats"}
    assert len(metrics.DISK) == 17
