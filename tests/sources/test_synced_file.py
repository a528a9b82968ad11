"""Small files that a crash leaves whole."""

from pathlib import Path

import pytest

from ccpipe.sources.synced_file import replace_content
from tests.sinks.conftest import full_disk


def test_a_file_has_the_old_content_or_the_new_one(tmp_path: Path) -> None:
    """A write that fails in the middle changes nothing under the file's name."""
    path = tmp_path / "state"
    replace_content(path, b"old")
    with full_disk(1), pytest.raises(OSError, match=r"too large|No space"):
        replace_content(path, b"new" * 1000)
    assert path.read_bytes() == b"old"
    replace_content(path, b"new")
    assert path.read_bytes() == b"new"
    assert list(tmp_path.glob("state*")) == [path]
