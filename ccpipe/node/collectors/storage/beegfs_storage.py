"""What the clients of BeeGFS asked of its storage servers: `beegfs-ctl --clientstats`.

The program needs root. The counters are those of all clients since the servers started, by
operation as BeeGFS names them; what it counts beyond these is added up as `other`.
"""

from collections.abc import Sequence

from ccpipe.config import Duration
from ccpipe.node.collectors.storage.beegfs import ClientStats, rows

METRICS = rows(
    "beegfs_cstorage",
    """
    sum ack sChDrct getFSize sAttr statfs trunc close fsync ops-rd MiB-rd/s ops-wr MiB-wr/s gendbg
    hrtbeat remNode storInf unlnk
    """,
)


class BeegfsStorage(ClientStats):
    """The storage servers of each BeeGFS that is mounted.

    Parameters
    ----------
    command
        The program, perhaps behind another one such as `sudo`.
    exclude
        Mount points to leave out, as patterns of a shell.
    exclude_operations
        Operations that only count for `other`, as patterns of a shell.
    timeout
        How long the program may take for one file system.
    root
        Where the file system begins in which mounts are listed; another than `/` for a captured
        tree.

    """

    def __init__(
        self,
        *,
        command: Sequence[str] = ("beegfs-ctl",),
        exclude: Sequence[str] = (),
        exclude_operations: Sequence[str] = (),
        timeout: Duration = Duration(5),
        root: str = "/",
    ) -> None:
        super().__init__(
            "storage",
            METRICS,
            command=command,
            exclude=exclude,
            exclude_operations=exclude_operations,
            timeout=float(timeout),
            root=root,
        )
