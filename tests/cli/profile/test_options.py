"""Options that the subcommands of ``ccpipe profile`` share."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from ccpipe.cli.profile.options import configured_folder, write_output
from ccpipe.errors import CreateError, UnavailableError


def test_the_folder_is_the_one_of_slurms_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_CONF", str(tmp_path / "slurm.conf"))
    assert configured_folder() is None
    conf = tmp_path / "acct_gather.conf"
    conf.write_text("#ProfileHDF5Dir=/no\nprofilehdf5dir = /shared/p # here\n")
    assert configured_folder() == Path("/shared/p")
    conf.write_text("ProfileHDF5Default=all\n")
    assert configured_folder() is None


def test_a_file_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(CreateError, match="nothing/x"):
        write_output(iter([b"a"]), tmp_path / "nothing" / "x")

    def broken() -> Iterator[bytes]:
        yield b"a"
        raise UnavailableError("the input ended")

    with pytest.raises(UnavailableError, match="the input ended"):
        write_output(broken(), tmp_path / "x")
    assert list(tmp_path.iterdir()) == []
