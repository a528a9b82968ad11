"""The counters of BeeGFS's metadata servers."""

from ccpipe.node.collectors.storage import beegfs_meta
from ccpipe.node.collectors.storage.beegfs_meta import BeegfsMeta
from tests.node.conftest import reported


def test_operations_are_the_sums_of_all_clients(command: list[str], beegfs_root: str) -> None:
    """What was never asked for is 0, and what is not in the table counts for other."""
    values = reported(BeegfsMeta(command=command, exclude=["/broken"], root=beegfs_root).collect(1))
    assert {mount for _, mount in values} == {"/beeond"}
    assert values["beegfs_cmeta_sum", "/beeond"] == 1307
    assert values["beegfs_cmeta_open", "/beeond"] == 205
    assert values["beegfs_cmeta_mirror", "/beeond"] == 0
    assert values["beegfs_cmeta_other", "/beeond"] == 7
    assert {name for name, _ in values} == {row.name for row in beegfs_meta.METRICS}
