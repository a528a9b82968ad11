"""Samples of profiles as metrics."""

from ccpipe.formats.slurm_metrics import METRICS, to_metrics
from ccpipe.formats.slurm_profile.series import SERIES


def test_every_field_of_slurm_has_its_own_metric() -> None:
    for name, series in SERIES.items():
        assert set(METRICS[name]) == {field.name for field in series.fields}
    names = [name for fields in METRICS.values() for name, _ in fields.values()]
    assert len(names) == len(set(names))


def test_task_is_series_with_sizes_in_bytes() -> None:
    values = {"RSS": 3, "ReadMB": 0.5, "CPUFrequency": None}
    found = list(
        to_metrics("Tasks", values, 10**18, cluster="fox", node="n1", job="17", step="0", task="3")
    )
    assert {message.name: message.value for message in found} == {
        "task_mem_rss": 3072, "task_read_bytes": 524288.0,
    }  # fmt: skip
    for message in found:
        assert message.problems() == []
        assert message.tags["stype"] == "task"
        assert message.tags["stype-id"] == "17.0.3"


def test_metric_of_sensor_keeps_name_of_field() -> None:
    [one] = to_metrics(
        "Energy", {"GPU0Power": 5}, 1, cluster="fox", node="n1", job=None, step="batch"
    )
    assert one.name == "energy_gpu0power"
    assert one.problems() == []
    assert "jobid" not in one.tags
