"""Files that are replaced atomically."""

from pathlib import Path

import pytest

from ccpipe.atomic_file import replace_content, replacing
from tests.sinks.conftest import full_disk


def test_file_has_old_content_or_new_one_when_write_fails(tmp_path: Path) -> None:
    """A write that fails in the middle changes nothing under the file's name."""
    path = tmp_path / "state"
    replace_content(path, b"old")
    with full_disk(1), pytest.raises(OSError, match=r"too large|No space"):
        replace_content(path, b"new" * 1000)
    assert path.read_bytes() == b"old"
    replace_content(path, b"new")
    assert path.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [path]


def test_file_is_not_replaced_when_block_raises(tmp_path: Path) -> None:
    path = tmp_path / "figure.png"
    with pytest.raises(FileNotFoundError), replacing(path) as draft:
        draft.with_name("missing").read_bytes()
    assert list(tmp_path.iterdir()) == []


def test_file_is_private_from_beginning_when_mode_is(tmp_path: Path) -> None:
    """Also where an abandoned draft, or the file before, was readable to all."""
    path = tmp_path / "password"
    path.write_text("old")
    with replacing(path, 0o600) as draft:
        assert draft.stat().st_mode & 0o777 == 0o600
        draft.write_text("secret")
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.read_text() == "secret"
