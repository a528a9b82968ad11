"""Operations of BeeGFS clients on the metadata servers: `beegfs-ctl --clientstats`.

The program needs root. The counters cover all clients since the servers started, by BeeGFS'
operation names; all other operations are summed as `other`.
"""

from ccpipe.node.collectors.storage.beegfs import ClientStats, rows

METRICS = rows(
    "beegfs_cmeta",
    """
    ack close entInf fndOwn mkdir create rddir refrEn mdsInf rmdir rmLnk mvDirIns mvFiIns open
    ren sChDrct sAttr sDirPat stat statfs trunc symlnk unlnk lookLI statLI revalLI openLI createLI
    hardlnk flckAp flckEn flckRg dirparent listXA getXA rmXA setXA mirror
    """,
)


class BeegfsMeta(ClientStats):
    """The metadata servers of each BeeGFS that is mounted."""

    kind = "meta"
    table = METRICS
