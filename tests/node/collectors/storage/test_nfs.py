"""NFS: ``/proc/net/rpc/nfs`` and ``/proc/self/mountstats``."""

from typing import Any

from ccpipe.node.collectors.storage.nfs import Nfs
from tests.node.conftest import Root, reported


def test_operations_are_those_since_the_last_sample(root: Root) -> None:
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


def test_operations_that_a_kernel_does_not_know_are_left_out(root: Root) -> None:
    """An old kernel tells of 61 operations of version 4: nothing is said of the later ones."""
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


def test_traffic_is_that_of_each_mount(root: Root, seconds: Any) -> None:
    """Counters and rates; a new mount has no rates yet, and other kinds of mounts nothing."""
    seconds(10)
    first, second = root.twice(Nfs(root=str(root)), "nfs")
    assert {point for name, point in first if name == "nfsio_nread"} == {"/home", "/mnt/old data"}
    assert {point for name, point in second if name == "nfsio_nread"} == {"/home", "/mnt/new"}
    assert {point for name, point in second if name == "nfsio_nread_bw"} == {"/home"}
    assert first["nfsio_pagewrite", "/home"] == 8
    assert second["nfsio_nwrite_bw", "/home"] == 200
    assert second["nfsio_nfswrite_bw", "/home"] == 1000
