"""Folders that survive a crash, and whether they can be written to."""

from pathlib import Path

import pytest

from ccpipe.errors import ConfigError, DeniedError
from ccpipe.sinks.disk import check_folder, make_folder
from tests.sinks.conftest import forbidden


def test_a_check_creates_nothing(tmp_path: Path) -> None:
    """A missing folder is fine where it could be created."""
    check_folder(tmp_path)
    check_folder(tmp_path / "a" / "b")
    assert list(tmp_path.iterdir()) == []


def test_a_file_in_the_way_is_named(tmp_path: Path) -> None:
    """It is a mistake in the configuration, however deep the folder would be."""
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=r"file is not a folder"):
        check_folder(tmp_path / "file" / "a" / "b")


def test_missing_permissions_are_named(tmp_path: Path) -> None:
    """Also where a folder below the forbidden one is to be created."""
    with forbidden(tmp_path / "folder") as folder:
        for path in (folder, folder / "a"):
            with pytest.raises(DeniedError, match="no write permission"):
                check_folder(path)


def test_every_new_folder_is_synced_to_the_disk(tmp_path: Path, synced: list[str]) -> None:
    """The parent of each holds its name; an existing folder needs nothing."""
    make_folder(tmp_path / "a" / "b")
    assert (tmp_path / "a" / "b").is_dir()
    assert synced == [tmp_path.name, "a"]
    make_folder(tmp_path / "a" / "b")
    assert len(synced) == 2
