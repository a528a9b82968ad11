"""Jobs on Lustre servers: rates by job and target, restarts, limits, and any bytes."""

import logging
import re
import tempfile
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.errors import ConfigError, DataError
from ccpipe.node.collectors.storage.lustre_jobstats import (
    LustreJobstats,
    OperationCount,
    TargetStats,
    read_jobs,
    target_files,
)
from ccpipe.registry import construct
from tests.node.conftest import PACKED, Root, reported

OST = "proc/fs/lustre/obdfilter/scratch-OST0000/job_stats"
COUNTERS = "  read_bytes: {{ samples: {0}, unit: bytes, min: 1, max: 2, sum: {1} }}\n"


def put(root: Path, jobs: dict[str, tuple[int, int]]) -> None:
    path = root / OST
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(f"- job_id: {job}\n{COUNTERS.format(*counts)}" for job, counts in jobs.items())
    path.write_text(f"job_stats:\n{text}")


def test_jobstats_reports_rates_by_job_and_target(root: Root, seconds: Any) -> None:
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


def test_jobstats_uses_tags_of_slurm_jobs(root: Root) -> None:
    """The tags that rules for jobs match: a server has the type ``node``."""
    collector = LustreJobstats(root=str(root))
    root.twice(collector, "lustre-jobstats")
    tags = {(each.tags["type"], each.tags["stype"]) for each in collector.collect(0)}
    assert tags == {("node", "job")}


def test_jobstats_omits_rates_of_job_dropped_in_between(tmp_path: Path, seconds: Any) -> None:
    """Neither if its counters restart nor in its first sample: a rate is never negative."""
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


def test_jobstats_counts_and_logs_jobs_over_limit(
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


def test_jobstats_ignores_excluded_jobs_in_limit(tmp_path: Path) -> None:
    put(tmp_path, {"cp.0": (1, 1), "ls.1000": (1, 1), "4711": (1, 1)})
    collector = LustreJobstats(exclude=["*.*"], max_jobs=1, root=str(tmp_path))
    list(collector.collect(0))
    assert {job for _, job in reported(collector.collect(0))} == {"4711@scratch-OST0000"}
    assert collector.soft.count == 0


@pytest.mark.parametrize("text", ["", "job_stats:\n"])
def test_jobstats_accepts_target_without_jobs(tmp_path: Path, text: str) -> None:
    """Newer versions of Lustre then write nothing at all."""
    put(tmp_path, {})
    (tmp_path / OST).write_text(text)
    collector = LustreJobstats(root=str(tmp_path))
    assert list(collector.collect(0)) == []
    assert collector.soft.count == 0


def test_jobstats_rejects_limit_below_one() -> None:
    with pytest.raises(ConfigError, match="max_jobs is 0: it must be positive"):
        construct(LustreJobstats, {"max_jobs": 0}, where="t", path="lustre_jobstats", context={})


NAMES = ("read_bytes", "write_bytes", "open", "getattr")
LINES = [
    line
    for line in (PACKED / "lustre-jobstats.txt").read_text().splitlines()
    if line.startswith((" ", "- job_id", "job_stats"))
]


def parsed(content: bytes, limit: int = 100, **options: Any) -> TargetStats:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "job_stats")
        path.write_bytes(content)
        given_ = {"operations": NAMES, "is_wanted": lambda _: True, **options}
        return read_jobs(path, limit=limit, **given_)


lines = st.lists(
    st.one_of(
        st.sampled_from(LINES).map(str.encode),
        st.tuples(st.sampled_from(LINES), st.integers(0, 80), st.binary(max_size=9)).map(
            lambda drawn: drawn[0][: drawn[1]].encode() + drawn[2] + drawn[0][drawn[1] :].encode()
        ),
        st.binary(max_size=60),
        st.just(b"- job_id: " + b"x" * 5000),
    ),
    max_size=40,
).map(b"\n".join)


@given(st.one_of(st.binary(max_size=300), lines), st.integers(0, 3))
def test_reader_returns_jobs_or_faults_for_any_bytes(content: bytes, limit: int) -> None:
    """Within the limits, with the requested operations; each fault names its line."""
    stats = parsed(content, limit)
    assert len(stats.jobs) <= limit
    assert len(stats.jobs) + stats.omitted <= content.count(b"job_id")
    for job, counts in stats.jobs.items():
        assert 0 < len(job) <= 256
        assert counts.keys() <= set(NAMES)
    for fault in stats.faults:
        assert type(fault) is DataError
        assert re.search(r"job_stats: line \d+: ", str(fault))


def escaped(job: str) -> str:
    """Return an id as ``lprocfs_jobstats_seq_show`` writes it."""
    plain = re.compile(rb"[A-Za-z0-9.@_:/-]")
    parts = [bytes([byte]) for byte in job.encode()]
    text = b"".join(p if plain.match(p) else b"\\x%02X" % p[0] for p in parts).decode()
    return f'"{text}"' if "\\" in text or ":" in text or text.startswith("@") else text


numbers = st.integers(0, 2**64 - 1)
counts = st.builds(OperationCount, numbers, st.none() | numbers)


@given(
    st.dictionaries(
        st.text(min_size=1, max_size=32), st.dictionaries(st.sampled_from(NAMES), counts)
    )
)
def test_reader_parses_output_of_lustre(jobs: dict[str, dict[str, OperationCount]]) -> None:
    """With ids of any characters and counters of 64 bits."""
    text = "job_stats:\n"
    for job, operations in jobs.items():
        text += f"- job_id:          {escaped(job)}\n  snapshot_time:   1740027951\n"
        for name, (samples, total) in operations.items():
            text += f"  {name}:     {{ samples: {samples:11}, unit:  reqs"
            if total is not None:
                text += f", min: {1:8}, max: {2:8}, sum: {total:16}, sumsq: {9:18}"
            text += " }\n"
    stats = parsed(text.encode())
    assert (stats.jobs, stats.omitted, stats.faults) == (jobs, 0, [])


def test_reader_ignores_lines_of_unreported_job() -> None:
    """Lines after an invalid id, or of an unwanted job, do not count for another job."""
    one = b"- job_id: 1\n  open: { samples: 5, unit: reqs }\n"
    for other in (b"- ob_id 2", b"- job_id: ", b'- job_id: "2', b"job_stats:"):
        stats = parsed(one + other + b"\n  open: { samples: 7, unit: reqs }\n")
        assert stats.jobs["1"]["open"].samples == 5
    stats = parsed(one + one.replace(b"1", b"2"), is_wanted=lambda job: job == "2")
    assert list(stats.jobs) == ["2"]


def test_reader_counts_jobs_over_limit() -> None:
    """In their order; a repeated one counts once."""
    text = "".join(f"- job_id: {job}\n  open: {{ samples: {job} }}\n" for job in (1, 2, 1, 3, 4))
    stats = parsed(text.encode(), limit=2)
    assert list(stats.jobs) == ["1", "2"]
    assert stats.omitted == 2


def test_reader_bounds_memory_for_any_file(tmp_path: Path) -> None:
    """Endless lines, jobs over the limit and bad lines use no more memory."""
    path = tmp_path / "job_stats"
    with path.open("wb") as file:
        for _ in range(16):
            file.write(b"x" * 2**20)
        file.write(b"\n")
        file.writelines(
            b"- job_id: %d\n  open: { samples: 1 }\n  open: x\n" % job for job in range(5000)
        )
    tracemalloc.start()
    try:
        stats = read_jobs(path, operations=NAMES, is_wanted=lambda _: True, limit=10)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (len(stats.jobs), stats.omitted, len(stats.faults)) == (10, 4990, 100)
    assert peak < 2**20


@pytest.mark.parametrize("kind", ["obdfilter", "mdt"])
def test_target_listed_twice_is_read_once(tmp_path: Path, kind: str) -> None:
    for directory in ("proc", "sys"):
        path = tmp_path / directory / "fs/lustre" / kind / "a-0/job_stats"
        path.parent.mkdir(parents=True)
        path.touch()
    assert target_files(str(tmp_path)) == {"a-0": tmp_path / f"proc/fs/lustre/{kind}/a-0/job_stats"}
