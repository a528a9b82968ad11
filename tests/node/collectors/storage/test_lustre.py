"""Lustre: ``llite/*/stats``."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from ccpipe.node.collectors.storage.lustre import Lustre
from tests.node.conftest import Root, reported, unpack


def test_bytes_are_sums_and_requests_are_samples(root: Root, seconds: Any) -> None:
    """What Lustre wrote no line for is 0; rates are over the time between."""
    seconds(10)
    first, second = root.twice(Lustre(root=str(root)), "lustre")
    assert first["lustre_read_bytes", "scratch"] == 3149824
    assert first["lustre_read_requests", "scratch"] == 5
    assert first["lustre_write_bytes", "scratch"] == 300
    assert first["lustre_getattr", "scratch"] == 11
    assert first["lustre_setattr", "scratch"] == 0
    assert first["lustre_read_bytes", "home"] == 0
    assert second["lustre_read_bw", "scratch"] == 1000
    assert second["lustre_read_requests_rate", "scratch"] == 1
    assert second["lustre_write_bw", "scratch"] == 40
    assert second["lustre_inode_permission", "scratch"] == 99
    assert second["lustre_read_bytes_diff", "scratch"] == 10_000
    assert second["lustre_read_requests_diff", "scratch"] == 10
    assert second["lustre_setattr_diff", "scratch"] == 1
    assert not any(name.endswith("_diff") for name, _ in first)
    # Two mounts of one file system stay two series.
    assert first["lustre_read_bytes", "work-ffff8f3a22222000"] == 1
    assert first["lustre_read_bytes", "work-ffff8f3a33333000"] == 2


def test_the_old_place_is_known(root: Root, tmp_path: Path) -> None:
    """Before 2.12 the files were in /proc."""
    root.show("lustre/first")
    shutil.copytree(
        root.path / "sys/kernel/debug/lustre", tmp_path / "old/proc/fs/lustre", symlinks=True
    )
    old = Lustre(root=str(tmp_path / "old"))
    assert reported(old.collect(0)) == reported(Lustre(root=str(root)).collect(0))


@pytest.mark.parametrize(
    "line",
    [
        "open x samples [regs]",
        "read_bytes 5 samples [bytes] 1 2 x",
        "open 99999999999999999999 samples [regs]",
    ],
)
def test_line_that_is_no_counter_costs_its_own_metrics(
    tmp_path: Path, line: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It is logged with file and line, and its metrics are left out: they are not 0."""
    path = "/proc/fs/lustre/llite/a-ffff/stats"
    unpack(f"@ first\n## {path}\nsnapshot_time 1 secs\n{line}\n@ second\n", tmp_path)
    found = reported(Lustre(root=str(tmp_path)).collect(0))
    assert f"{path}: line 2: " in caplog.text
    key = line.partition(" ")[0].removesuffix("_bytes")
    assert found["lustre_close", "a"] == 0
    assert not [name for name, _ in found if name.startswith(f"lustre_{key}")]
