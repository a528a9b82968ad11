"""``job_stats`` of Lustre's targets: any bytes, ids as Lustre escapes them, bounded memory."""

import re
import tempfile
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.errors import DataError
from ccpipe.node.linux.lustre_jobstats import OperationCount, TargetStats, files, read
from tests.node.conftest import PACKED

NAMES = ("read_bytes", "write_bytes", "open", "getattr")
LINES = [
    line
    for line in (PACKED / "lustre-jobstats.txt").read_text().splitlines()
    if line.startswith((" ", "- job_id", "job_stats"))
]


def parsed(content: bytes, limit: int = 100, **options: Any) -> TargetStats:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "job_stats")
        path.write_bytes(content)
        given_ = {"operations": NAMES, "is_wanted": lambda _: True, **options}
        return read(path, limit=limit, **given_)


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
def test_any_bytes_are_jobs_or_faults(content: bytes, limit: int) -> None:
    """Within the bounds, with the operations asked for; each fault names its line."""
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
def test_what_lustre_writes_is_read_back(
    jobs: dict[str, dict[str, OperationCount]],
) -> None:
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


def test_line_of_no_job_is_not_counted_to_the_one_before() -> None:
    """Neither the lines of an id that cannot be read, nor those of a job that is not wanted."""
    one = b"- job_id: 1\n  open: { samples: 5, unit: reqs }\n"
    for other in (b"- ob_id 2", b"- job_id: ", b'- job_id: "2', b"job_stats:"):
        stats = parsed(one + other + b"\n  open: { samples: 7, unit: reqs }\n")
        assert stats.jobs["1"]["open"].samples == 5
    stats = parsed(one + one.replace(b"1", b"2"), is_wanted=lambda job: job == "2")
    assert list(stats.jobs) == ["2"]


def test_jobs_that_no_longer_fit_are_counted() -> None:
    """In their order; one that is listed again takes no second place."""
    text = "".join(f"- job_id: {job}\n  open: {{ samples: {job} }}\n" for job in (1, 2, 1, 3, 4))
    stats = parsed(text.encode(), limit=2)
    assert list(stats.jobs) == ["1", "2"]
    assert stats.omitted == 2


def test_memory_is_bounded_for_any_file(tmp_path: Path) -> None:
    """A line without end, more jobs than the limit, and bad lines take no more memory."""
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
        stats = read(path, operations=NAMES, is_wanted=lambda _: True, limit=10)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (len(stats.jobs), stats.omitted, len(stats.faults)) == (10, 4990, 100)
    assert peak < 2**20


@pytest.mark.parametrize("kind", ["obdfilter", "mdt"])
def test_target_that_is_listed_twice_is_read_once(tmp_path: Path, kind: str) -> None:
    for folder in ("proc", "sys"):
        path = tmp_path / folder / "fs/lustre" / kind / "a-0/job_stats"
        path.parent.mkdir(parents=True)
        path.touch()
    assert files(str(tmp_path)) == {"a-0": tmp_path / f"proc/fs/lustre/{kind}/a-0/job_stats"}
