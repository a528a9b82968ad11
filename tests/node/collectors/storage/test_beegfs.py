"""BeeGFS, replaced by a program that prints the format of ``beegfs-ctl``."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.errors import DataError
from ccpipe.node.collectors.storage import beegfs_meta, beegfs_storage
from ccpipe.node.collectors.storage.beegfs_meta import BeegfsMeta
from ccpipe.node.collectors.storage.beegfs_storage import BeegfsStorage
from tests.node.conftest import checked, reported
from tests.paths import TEST_DATA


def test_excluded_operations_count_for_other(command: list[str], beegfs_root: str) -> None:
    """As with cc-metric-collector."""
    collector = BeegfsMeta(
        command=command, exclude=["/broken"], exclude_operations=["open", "ack"], root=beegfs_root
    )
    values = reported(collector.collect(1))
    assert ("beegfs_cmeta_open", "/beeond") not in values
    assert values["beegfs_cmeta_other", "/beeond"] == 7 + 205 + 12


def test_a_file_system_that_fails_costs_itself_only(
    command: list[str], beegfs_root: str, caplog: pytest.LogCaptureFixture
) -> None:
    collector = BeegfsMeta(command=command, root=beegfs_root)
    for _ in range(2):
        assert {mount for _, mount in reported(collector.collect(1))} == {"/beeond"}
    [record] = caplog.records
    assert record.message == "collector beegfs_meta: /broken: ended with 1: no luck"


def test_without_beegfs_it_is_off(tmp_path: Path) -> None:
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/mounts").write_text("/dev/sda1 / ext4 rw 0 0\n")
    with pytest.raises(FileNotFoundError, match="no BeeGFS is mounted"):
        list(BeegfsMeta(command=["/nowhere"], root=str(tmp_path)).collect(1))


@given(st.binary(max_size=200) | st.text(max_size=100).map(lambda text: f"Sum: {text}".encode()))
def test_any_output_gives_counters_or_a_named_error(output: bytes) -> None:
    """No bytes raise anything else."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ccpipe.node.collectors.storage.beegfs.run", lambda *_, **__: output)
        try:
            counts = BeegfsMeta()._read("/x")
        except DataError as error:
            assert "Sum:" in str(error)  # noqa: PT017 - it need not be raised
        else:
            assert all(value >= 0 for value in counts.values())


DATA = TEST_DATA / "beegfs"
SCRIPT = """#!/bin/sh
echo "$@" >> {asked}
case "$*" in
*--mount=/broken*) echo no luck >&2; exit 1;;
*--nodetype=meta*) cat {data}/meta.txt;;
*--nodetype=storage*) cat {data}/storage.txt;;
esac
"""


@pytest.fixture
def beegfs_root(tmp_path: Path) -> str:
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/mounts").write_text(
        "/dev/sda1 / ext4 rw 0 0\n"
        "beegfs_ondemand /beeond beegfs rw 0 0\n"
        "beegfs_nodev /broken beegfs rw 0 0\n"
    )
    return str(tmp_path)


@pytest.fixture
def command(tmp_path: Path) -> list[str]:
    program = tmp_path / "beegfs-ctl"
    program.write_text(SCRIPT.format(data=DATA, asked=tmp_path / "asked"))
    program.chmod(0o755)
    return [str(program)]


def test_operations_are_the_sums_of_all_clients(command: list[str], beegfs_root: str) -> None:
    """Operations never requested are 0, and unknown ones count as other."""
    values = reported(BeegfsMeta(command=command, exclude=["/broken"], root=beegfs_root).collect(1))
    assert {mount for _, mount in values} == {"/beeond"}
    assert values["beegfs_cmeta_sum", "/beeond"] == 1307
    assert values["beegfs_cmeta_open", "/beeond"] == 205
    assert values["beegfs_cmeta_mirror", "/beeond"] == 0
    assert values["beegfs_cmeta_other", "/beeond"] == 7
    assert {name for name, _ in values} == {row.name for row in beegfs_meta.METRICS}


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
