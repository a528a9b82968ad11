"""Jobs on Lustre servers: rates by job and target, restarts, limits."""

import logging
from pathlib import Path
from typing import Any

import pytest

from ccpipe.errors import ConfigError
from ccpipe.node.collectors.storage.lustre_jobstats import LustreJobstats
from ccpipe.registry import construct
from tests.node.conftest import Root, reported

OST = "proc/fs/lustre/obdfilter/scratch-OST0000/job_stats"
COUNTERS = "  read_bytes: {{ samples: {0}, unit: bytes, min: 1, max: 2, sum: {1} }}\n"


def put(root: Path, jobs: dict[str, tuple[int, int]]) -> None:
    path = root / OST
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(f"- job_id: {job}\n{COUNTERS.format(*counts)}" for job, counts in jobs.items())
    path.write_text(f"job_stats:\n{text}")


def test_rates_are_those_of_each_job_on_each_target(root: Root, seconds: Any) -> None:
    """Bytes are sums and requests are samples, by the time between; the first sample has none."""
    seconds(10)
    first, second = root.twice(LustreJobstats(root=str(root)), "lustre-jobstats")
    assert first == {}
    job = "4711@scratch-OST0000"
    assert second["lustre_job_read_bw", job] == 1000
    assert second["lustre_job_read_requests_rate", job] == 1
    assert second["lustre_job_write_bw", job] == 40
    assert second["lustre_job_write_requests_rate", job] == 0.2
    assert second["lustre_job_getattr_rate", job] == 0
    assert second["lustre_job_open_rate", "4711@scratch-MDT0000"] == 2
    assert second["lustre_job_unlink_rate", "4711@scratch-MDT0000"] == 0.5
    assert second["lustre_job_read_bw", "4711:a b@scratch-OST0001"] == 2_000_000
    assert ("lustre_job_open_rate", job) not in second  # an operation of metadata targets
    assert len({job for _, job in second}) == 3


def test_job_is_reported_as_those_of_slurm_are(root: Root) -> None:
    """By tags that rules for jobs match: a server has the type ``node``."""
    collector = LustreJobstats(root=str(root))
    root.twice(collector, "lustre-jobstats")
    tags = {(each.tags["type"], each.tags["stype"]) for each in collector.collect(0)}
    assert tags == {("node", "job")}


def test_job_that_lustre_forgot_in_between_has_no_rates(tmp_path: Path, seconds: Any) -> None:
    """Neither if its counters begin anew nor in its first sample: a rate is never negative."""
    seconds(10)
    collector = LustreJobstats(root=str(tmp_path))
    samples = []
    for counts in ({"1": (5, 500), "2": (5, 500)}, {"1": (2, 900)}, {"1": (4, 1000), "2": (9, 9)}):
        put(tmp_path, counts)
        samples.append(reported(collector.collect(0)))
    assert samples[:2] == [{}, {}]
    assert samples[2] == {
        ("lustre_job_read_bw", "1@scratch-OST0000"): 10,
        ("lustre_job_read_requests_rate", "1@scratch-OST0000"): 0.2,
    }


def test_jobs_over_the_limit_are_counted_and_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The first jobs are reported, over all targets together."""
    put(tmp_path, {"1": (1, 1), "2": (1, 1), "3": (1, 1), "4": (1, 1)})
    other = tmp_path / OST.replace("OST0000", "OST0001")
    other.parent.mkdir()
    other.write_text((tmp_path / OST).read_text())
    collector = LustreJobstats(max_jobs=3, root=str(tmp_path))
    for number in (1, 2):
        jobs = {job for _, job in reported(collector.collect(0))}
        assert collector.soft.count == 5 * number
    assert jobs == {f"{job}@scratch-OST0000" for job in (1, 2, 3)}
    [record] = caplog.records
    assert record.levelno == logging.WARNING
    assert "more than 3 jobs (max_jobs); the others are left out" in record.message


def test_excluded_jobs_take_no_place(tmp_path: Path) -> None:
    """A limit of the jobs counts those that are wanted."""
    put(tmp_path, {"cp.0": (1, 1), "ls.1000": (1, 1), "4711": (1, 1)})
    collector = LustreJobstats(exclude=["*.*"], max_jobs=1, root=str(tmp_path))
    list(collector.collect(0))
    assert {job for _, job in reported(collector.collect(0))} == {"4711@scratch-OST0000"}
    assert collector.soft.count == 0


@pytest.mark.parametrize("text", ["", "job_stats:\n"])
def test_target_without_jobs_is_in_order(tmp_path: Path, text: str) -> None:
    """Newer versions of Lustre write nothing at all then."""
    put(tmp_path, {})
    (tmp_path / OST).write_text(text)
    collector = LustreJobstats(root=str(tmp_path))
    assert list(collector.collect(0)) == []
    assert collector.soft.count == 0


def test_limit_must_be_positive() -> None:
    with pytest.raises(ConfigError, match="max_jobs is 0: it must be positive"):
        construct(LustreJobstats, {"max_jobs": 0}, where="t", path="lustre_jobstats", context={})
