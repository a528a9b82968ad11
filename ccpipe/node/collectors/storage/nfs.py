"""NFS operations and I/O of the node: ``/proc/net/rpc/nfs`` and ``/proc/self/mountstats``.

The operations (``nfs3_*``, ``nfs4_*``) cover all mounts together, use ``nfsstat``'s names, and are
deltas since the last sample. The metrics ``nfsio_*`` are per mount and start at mount time; their
rates (``_bw``) cover the time since the last sample.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from ccpipe.message import Message, metric
from ccpipe.node.linux import proc
from ccpipe.node.sampling.collector import Metric, Previous, SoftErrors, emit, rate_rows, rates

# In the order of the kernel (include/linux/nfs4.h), which only adds at the end.
_NFS3 = """
    null getattr setattr lookup access readlink read write create mkdir symlink mknod remove
    rmdir rename link readdir readdirplus fsstat fsinfo pathconf commit
    """
_NFS4 = """
    null read write commit open open_conf open_noat open_dgrd close setattr fsinfo renew
    setclntid confirm lock lockt locku access getattr lookup lookup_root remove rename link
    symlink create pathconf statfs readlink readdir server_caps delegreturn getacl setacl
    fs_locations rel_lkowner secinfo fsid_present exchange_id create_session destroy_session
    sequence get_lease_time reclaim_comp layoutget getdevinfo layoutcommit layoutreturn
    secinfo_no test_stateid free_stateid getdevicelist bind_conn_to_ses destroy_clientid seek
    allocate deallocate layoutstats clone copy offload_cancel lookupp layouterror copy_notify
    getxattr setxattr listxattrs removexattr read_plus
    """
_OPERATIONS = {
    version: tuple(
        Metric(
            f"{prefix}_{operation}",
            "",
            int,
            f"calls of this NFS version {prefix[-1]} operation since the last sample",
            family=f"{prefix}_<operation>",
        )
        for operation in operations.split()
    )
    for version, prefix, operations in (("proc3", "nfs3", _NFS3), ("proc4", "nfs4", _NFS4))
}

_TOTALS = {
    "proc3": Metric("nfs3_total", "", int, "NFS version 3 calls since the last sample"),
    "proc4": Metric("nfs4_total", "", int, "NFS version 4 calls since the last sample"),
}

_row = partial(Metric, stype="filesystem")
_TRAFFIC = (  # in the order of the line "bytes:" of a mount
    _row("nfsio_nread", "bytes", int, "read by programs"),
    _row("nfsio_nwrite", "bytes", int, "written by programs"),
    _row("nfsio_oread", "bytes", int, "read with O_DIRECT"),
    _row("nfsio_owrite", "bytes", int, "written with O_DIRECT"),
    _row("nfsio_nfsread", "bytes", int, "read from the server"),
    _row("nfsio_nfswrite", "bytes", int, "written to the server"),
    _row("nfsio_pageread", "pages", int, "read through mmap and read-ahead"),
    _row("nfsio_pagewrite", "pages", int, "written back from the cache"),
)

_RATES = rate_rows(_TRAFFIC, "_bw")

METRICS = (*_OPERATIONS["proc3"], *_OPERATIONS["proc4"], *_TOTALS.values(), *_TRAFFIC, *_RATES)


_OF_NODE = {"type": "node"}


class Nfs:
    """The node as a client of NFS; the first sample has no operations and rates.

    Parameters
    ----------
    exclude
        Mount points to exclude, as shell patterns.
    root
        Root of the file system to read; set it to read a captured tree.

    """

    def __init__(self, *, exclude: Sequence[str] = (), root: str = "/") -> None:
        self._exclude = exclude
        self._calls = Path(root, "proc/net/rpc/nfs")
        self._mounts = Path(root, "proc/self/mountstats")
        self._previous = Previous[list[int]]()
        self.soft = SoftErrors("nfs")

    def collect(self, time: int) -> Iterator[Message]:
        calls: dict[str, list[int]] = {}
        mounts: dict[str, list[int]] = {}
        with self.soft.noted():
            self._read_calls(calls)
        with self.soft.noted():
            self._read_mounts(mounts)
        self.soft.report(calls or mounts)
        before, seconds = self._previous.swap({**calls, **mounts})
        for version, counters in calls.items():
            gains = proc.gained(before.get(version), counters)
            if gains is not None:
                yield from emit(_OPERATIONS[version], gains, time, _OF_NODE)
                yield metric(_TOTALS[version].name, sum(gains), time=time, tags=_OF_NODE)
        for point, counters in mounts.items():
            tags = {"type": "node", "stype": "filesystem", "stype-id": proc.tag(point)}
            yield from emit(_TRAFFIC, counters, time, tags)
            yield from emit(_RATES, rates(before.get(point), counters, seconds), time, tags)

    def _read_calls(self, found: dict[str, list[int]]) -> None:
        for place, line in proc.lines(self._calls):
            version, *words = line.split()
            if version in _OPERATIONS:
                # The first number is the count of those that follow.
                with self.soft.noted():
                    found[version] = proc.counters(place, words, minimum=1)[1:]

    def _read_mounts(self, found: dict[str, list[int]]) -> None:
        point = ""
        for place, line in proc.lines(self._mounts):
            if line.startswith("device "):
                point = _nfs_mount(line)
            elif point and line.startswith("\tbytes:"):
                if not proc.matches(point, self._exclude):
                    words = line.split()[1:]
                    with self.soft.noted():
                        found[point] = proc.counters(place, words, minimum=len(_TRAFFIC))[
                            : len(_TRAFFIC)
                        ]
                point = ""


def _nfs_mount(line: str) -> str:
    # device server:/home mounted on /home with fstype nfs4 statvers=1.1
    _, _, rest = line.partition(" mounted on ")
    point, _, kind = rest.rpartition(" with fstype ")
    return point if kind.split(" ")[0] in ("nfs", "nfs4") else ""
