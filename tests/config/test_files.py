"""Configuration files: search order, and errors for unreadable ones."""

from pathlib import Path

import pytest

from ccpipe.config import find_config, make_directory_of, read_toml, state_directory
from ccpipe.errors import ConfigError, CreateError, MissingInputError


@pytest.mark.parametrize(
    "content",
    [
        b"cluster = ",
        b"cluster = 'a'\ncluster = 'b'",
        b"\xff",
        b"x = " + b"9" * 5000,
        b"x = " + b"[" * 5000 + b"]" * 5000,
    ],
)
def test_reader_names_file_with_invalid_toml(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.toml"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=f"^{path}: not (TOML: .|a text file: byte 0)"):
        read_toml(path)


def test_reader_names_unreadable_file(tmp_path: Path) -> None:
    with pytest.raises(MissingInputError, match=f"^{tmp_path}/none.toml: No such file"):
        read_toml(tmp_path / "none.toml")
    with pytest.raises(MissingInputError, match=f"^{tmp_path}: Is a directory"):
        read_toml(tmp_path)


def test_configuration_file_is_searched_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The named one, existing or not; then the user's; a home directory is not required."""
    monkeypatch.setenv("CCPIPE_CONFIG", "/elsewhere.toml")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert find_config() == Path("/elsewhere.toml")
    monkeypatch.delenv("CCPIPE_CONFIG")
    mine = tmp_path / "ccpipe" / "ccpipe.toml"
    mine.parent.mkdir()
    mine.touch()
    assert find_config() == mine
    monkeypatch.delenv("XDG_CONFIG_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    mine.parent.rename(tmp_path / "away")
    (tmp_path / ".config").mkdir()
    (tmp_path / "away").rename(tmp_path / ".config" / "ccpipe")
    assert find_config() == tmp_path / ".config" / "ccpipe" / "ccpipe.toml"


def test_state_directory_follows_xdg(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert state_directory() == tmp_path / "ccpipe"
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert state_directory() == tmp_path / ".local" / "state" / "ccpipe"


def test_state_directory_needs_no_home(monkeypatch: pytest.MonkeyPatch) -> None:
    """A container may run as a user missing in the user database."""

    def unknown() -> Path:
        raise RuntimeError("Could not determine home directory.")

    for name in ("CCPIPE_CONFIG", "XDG_CONFIG_HOME", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "home", unknown)
    assert find_config() in (None, Path("/etc/ccpipe/ccpipe.toml"))
    assert state_directory().name == "ccpipe"


def test_unwritable_directory_error_has_advice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A shipped recipe names a directory below /var/lib, which is not an ordinary user's."""
    path = tmp_path / "lib" / "ccpipe" / "a.state"
    make_directory_of("state", path)
    assert path.parent.is_dir()
    monkeypatch.setattr("os.access", lambda *_: False)
    with pytest.raises(CreateError) as caught:
        make_directory_of("state", path)
    assert str(caught.value) == (
        f"state: {path}: no file can be created in {path.parent} (Permission denied): "
        "create that directory for this user, or set state to another path"
    )
