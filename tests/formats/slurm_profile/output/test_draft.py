"""A file that gets its name when it is complete."""

from pathlib import Path

import pytest

from ccpipe.errors import UnavailableError
from ccpipe.formats.slurm_profile.output.draft import exclusive_draft, rename_complete


def test_a_file_appears_when_it_is_complete(tmp_path: Path) -> None:
    """And nothing else is left."""
    with exclusive_draft(tmp_path / "job") as draft:
        draft.write_text("all of it")
        assert not (tmp_path / "job").exists()
        rename_complete(draft, tmp_path / "job")
    assert [path.name for path in tmp_path.iterdir()] == ["job"]
    assert (tmp_path / "job").read_text() == "all of it"


def test_a_draft_that_is_given_up_leaves_what_was_there(tmp_path: Path) -> None:
    """Whatever stopped it."""
    (tmp_path / "job").write_text("before")
    with exclusive_draft(tmp_path / "job") as draft:
        draft.write_text("half of it")
    assert [path.name for path in tmp_path.iterdir()] == ["job"]
    assert (tmp_path / "job").read_text() == "before"


def test_one_process_at_a_time_writes(tmp_path: Path) -> None:
    """Else the second one to finish would drop what the first one has added."""
    with exclusive_draft(tmp_path / "job") as draft:
        with (
            pytest.raises(UnavailableError, match="another process is merging"),
            exclusive_draft(tmp_path / "job"),
        ):
            pass
        assert draft.exists()
    with exclusive_draft(tmp_path / "job"):
        pass


def test_what_a_killed_process_left_is_no_obstacle(tmp_path: Path) -> None:
    """Its lock went with it."""
    (tmp_path / ".job.merging").write_text("half")
    with exclusive_draft(tmp_path / "job") as draft:
        draft.write_text("whole")
        rename_complete(draft, tmp_path / "job")
    assert (tmp_path / "job").read_text() == "whole"


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    """A link that somebody put there would lead to a file that is overwritten."""
    (tmp_path / "precious").write_text("x")
    (tmp_path / ".job.merging").symlink_to(tmp_path / "precious")
    with pytest.raises(OSError, match="symbolic link"), exclusive_draft(tmp_path / "job"):
        pass
    assert (tmp_path / "precious").read_text() == "x"
