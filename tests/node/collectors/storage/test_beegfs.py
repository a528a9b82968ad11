"""BeeGFS, as ``beegfs-ctl`` reports it: what both of its collectors do alike."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.errors import DataError
from ccpipe.node.collectors.storage.beegfs_meta import BeegfsMeta
from tests.node.conftest import reported


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
    assert record.message == "collector beegfs_meta: /broken: ended with 1: b'no luck\\n'"


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
