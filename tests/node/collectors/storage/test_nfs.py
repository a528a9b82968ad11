"""NFS: ``/proc/net/rpc/nfs`` and ``/proc/self/mountstats``. Lustre: ``llite/*/stats``."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from ccpipe.node.collectors.storage.lustre import Lustre
from ccpipe.node.collectors.storage.nfs import Nfs
from tests.node.conftest import Root, reported, unpack


def test_nfs_reports_operations_since_last_sample(root: Root) -> None:
    """Each version's, in the kernel's order; none in the first sample."""
    first, second = root.twice(Nfs(root=str(root)), "nfs")
    assert not any(name.startswith(("nfs3_", "nfs4_")) for name, _ in first)
    gained = {
        name for (name, _), value in second.items() if value and name[:5] in ("nfs3_", "nfs4_")
    } - {"nfs3_total", "nfs4_total"}
    assert gained == {
        "nfs3_getattr",
        "nfs3_write",
        "nfs4_read",
        "nfs4_sequence",
        "nfs4_offload_cancel",
    }
    assert second["nfs3_write", ""] == 3
    assert second["nfs4_sequence", ""] == 10
    for version in ("nfs3", "nfs4"):
        of_version = {key: value for key, value in second.items() if key[0].startswith(version)}
        total = of_version.pop((f"{version}_total", ""))
        assert total == sum(map(int, of_version.values()))


def test_nfs_omits_operations_unknown_to_kernel(root: Root) -> None:
    """An old kernel reports 61 operations of version 4: the later ones are omitted."""
    collector = Nfs(root=str(root))
    for reading in ("first", "second"):
        root.show(f"nfs/{reading}")
        path = root.path / "proc/net/rpc/nfs"
        words = path.read_text().splitlines()[-1].split()
        path.write_text(" ".join(["proc4", "61", *words[2 : 2 + 61]]))
        values = reported(collector.collect(0))
    assert len([name for name, _ in values if name.startswith("nfs4_")]) == 61 + 1
    assert values["nfs4_offload_cancel", ""] == 2
    assert ("nfs4_lookupp", "") not in values


def test_nfs_reports_traffic_of_each_mount(root: Root, seconds: Any) -> None:
    """Counters and rates; a new mount has no rates yet, and other kinds of mounts are skipped."""
    seconds(10)
    first, second = root.twice(Nfs(root=str(root)), "nfs")
    assert {point for name, point in first if name == "nfsio_nread"} == {"/home", "/mnt/old data"}
    assert {point for name, point in second if name == "nfsio_nread"} == {"/home", "/mnt/new"}
    assert {point for name, point in second if name == "nfsio_nread_bw"} == {"/home"}
    assert first["nfsio_pagewrite", "/home"] == 8
    assert second["nfsio_nwrite_bw", "/home"] == 200
    assert second["nfsio_nfswrite_bw", "/home"] == 1000


def test_lustre_reports_bytes_as_sums_and_requests_as_samples(root: Root, seconds: Any) -> None:
    """Operations without a line are 0; rates cover the time between samples."""
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


def test_lustre_reads_old_directory(root: Root, tmp_path: Path) -> None:
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
def test_lustre_omits_metrics_of_invalid_line(
    tmp_path: Path, line: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It is logged with file and line, and its metrics are omitted: they are not 0."""
    path = "/proc/fs/lustre/llite/a-ffff/stats"
    unpack(f"@ first\n## {path}\nsnapshot_time 1 secs\n{line}\n@ second\n", tmp_path)
    found = reported(Lustre(root=str(tmp_path)).collect(0))
    assert f"{path}: line 2: " in caplog.text
    key = line.partition(" ")[0].removesuffix("_bytes")
    assert found["lustre_close", "a"] == 0
    assert not [name for name, _ in found if name.startswith(f"lustre_{key}")]
