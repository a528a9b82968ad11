"""Operations of BeeGFS clients on the storage servers: `beegfs-ctl --clientstats`.

The program needs root. The counters cover all clients since the servers started, by BeeGFS'
operation names; all other operations are summed as `other`.
"""

from ccpipe.node.collectors.storage.beegfs import ClientStats, rows

METRICS = rows(
    "beegfs_cstorage",
    """
    ack sChDrct getFSize sAttr statfs trunc close fsync ops-rd MiB-rd/s ops-wr MiB-wr/s gendbg
    hrtbeat remNode storInf unlnk
    """,
)


class BeegfsStorage(ClientStats):
    """The storage servers of each BeeGFS that is mounted."""

    kind = "storage"
    table = METRICS
