"""The counters and rates of BeeGFS's storage servers."""

from pathlib import Path

from ccpipe.node.collectors.storage import beegfs_storage
from ccpipe.node.collectors.storage.beegfs_storage import BeegfsStorage
from tests.node.conftest import checked


def test_storage_has_rates_too(command: list[str], beegfs_root: str, tmp_path: Path) -> None:
    """Under BeeGFS's own names, which cc-metric-collector keeps."""
    collector = BeegfsStorage(command=command, exclude=["/broken"], root=beegfs_root)
    messages = [checked(message) for message in collector.collect(1)]
    values = {message.name: message.value for message in messages}
    assert values["beegfs_cstorage_MiB-rd/s"] == 12.5
    assert values["beegfs_cstorage_ops-wr"] == 500
    assert values.keys() == {row.name for row in beegfs_storage.METRICS}
    assert {type(value) for value in values.values()} == {float}
    [asked] = (tmp_path / "asked").read_text().splitlines()
    assert asked == "--clientstats --nodetype=storage --mount=/beeond --allstats"
