"""GPFS file systems, as reported by ``mmpmon``, replaced by a program that prints its format."""

from pathlib import Path

import pytest

from ccpipe.config import Duration
from ccpipe.errors import DataError
from ccpipe.node.collectors.storage.gpfs import METRICS, Gpfs
from tests.node.conftest import reported
from tests.paths import TEST_DATA

DATA = TEST_DATA / "gpfs"


def test_gpfs_reports_counters_and_rates_by_file_system(shown: Path) -> None:
    """10 MiB in 5 s by mmpmon's own clock; after a new mount rates are omitted once."""
    collector, messages = Gpfs(command=["cat", str(shown)]), []
    for reading in ("first", "second"):
        shown.write_bytes((DATA / f"{reading}.txt").read_bytes())
        messages.append(list(collector.collect(1)))
    first, second = map(reported, messages)
    sent = {(m.name, type(m.value), m.tags["stype"]) for m in (*messages[0], *messages[1])}
    assert sent == {(row.name, row.kind, row.stype) for row in METRICS}
    assert first["gpfs_bytes_read", "gpfs2"] == 6291456
    assert first["gpfs_num_opens", "work"] == 26
    levels = {
        row.name for row in METRICS if row.kind is not float and not row.name.endswith("_diff")
    }
    assert {name for name, _ in first} == levels
    assert first["gpfs_iops", "gpfs2"] == (
        first["gpfs_num_reads", "gpfs2"] + first["gpfs_num_writes", "gpfs2"]  # type: ignore[operator]
    )
    assert second["gpfs_bw_read", "gpfs2"] == 10 * 2**20 / 5
    assert second["gpfs_bw_write", "gpfs2"] == 0
    assert second["gpfs_bytes_read_diff", "gpfs2"] == second["gpfs_bytes_total_diff", "gpfs2"]
    assert second["gpfs_bytes_total_diff", "gpfs2"] == 10 * 2**20
    assert second["gpfs_bw_total", "gpfs2"] == 10 * 2**20 / 5
    assert second["gpfs_reads_rate", "gpfs2"] == 2
    assert second["gpfs_iops_rate", "gpfs2"] == 2
    assert second["gpfs_iops_diff", "gpfs2"] == 10
    assert second["gpfs_metaops_rate", "gpfs2"] == 3
    assert ("gpfs_iops_rate", "work") not in second
    assert ("gpfs_iops_diff", "work") not in second
    assert second["gpfs_bytes_read", "work"] == 4096


def test_gpfs_has_the_33_names_of_cc_metric_collector() -> None:
    """Eight counters, their deltas and rates, and the same of three totals."""
    assert len(METRICS) == 33
    names = {row.name for row in METRICS}
    assert {"gpfs_closes_rate", "gpfs_inode_updates_rate", "gpfs_num_opens_diff"} <= names
    assert {"gpfs_bytes_total", "gpfs_bw_total", "gpfs_iops_diff", "gpfs_metaops"} <= names


def test_gpfs_sends_request_on_standard_input(tmp_path: Path) -> None:
    """As cc-metric-collector does: ``once fs_io_s``, and then end of file."""
    asked = tmp_path / "asked"
    script = f"cat > {asked}; cat {DATA / 'first.txt'}"
    assert list(Gpfs(command=["sh", "-c", script]).collect(1))
    assert asked.read_bytes() == b"once fs_io_s\n"


def test_gpfs_excludes_file_system_by_pattern(shown: Path) -> None:
    shown.write_bytes((DATA / "first.txt").read_bytes())
    values = reported(Gpfs(command=["cat", str(shown)], exclude=["gpfs*"]).collect(1))
    assert {name for _, name in values} == {"work"}


def test_gpfs_reports_nothing_if_nothing_is_mounted(shown: Path) -> None:
    """Mmpmon then answers without a file system; other lines are skipped."""
    shown.write_text("_ver_ _n_ 1 _v_ 3\n_fs_io_s_ _n_ 1 _nn_ n _rc_ 0 _t_ 1 _tu_ 2 _cl_ c\n")
    assert list(Gpfs(command=["cat", str(shown)]).collect(1)) == []


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("_fs_io_s_ _rc_ 0 _t_ 1 _tu_ 2 _fs_ gpfs2", "line 1: '' is not a counter"),
        ("_fs_io_s_ _rc_ 0 _t_ 1 _tu_ 2 _fs_ gpfs2 _br_ -1", "line 1: '-1' is not a counter"),
    ],
)
def test_gpfs_rejects_invalid_counter(shown: Path, line: str, reason: str) -> None:
    shown.write_text(line + "\n")
    with pytest.raises(DataError, match=reason):
        list(Gpfs(command=["cat", str(shown)]).collect(1))


def test_gpfs_omits_only_file_system_without_answer(
    shown: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bad = "_fs_io_s_ _n_ 1 _nn_ n _rc_ 1 _t_ 1 _tu_ 2 _cl_ c _fs_ bad\n"
    shown.write_text(bad + (DATA / "first.txt").read_text())
    collector = Gpfs(command=["cat", str(shown)])
    for _ in range(2):
        assert {name for _, name in reported(collector.collect(1))} == {"gpfs2", "work"}
    [record] = caplog.records
    assert record.message == "collector gpfs: mmpmon: line 1: GPFS answers rc 1"


def test_gpfs_kills_program_after_timeout() -> None:
    with pytest.raises(ChildProcessError, match=r"took more than 0\.1 s"):
        list(Gpfs(command=["sleep", "600"], timeout=Duration(0.1)).collect(1))


@pytest.fixture
def shown(tmp_path: Path) -> Path:
    return tmp_path / "shown"
