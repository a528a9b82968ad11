"""Parts of ``make packages``; tests/site installs the packages."""

import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

from scripts.interpreter import natural
from scripts.packages import DESCRIPTIONS, UNITS, check_floor, pack, remove_common
from tests.conftest import program
from tests.paths import ROOT


def test_floor_check_names_each_file_that_needs_later_glibc(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The latest version is printed; above the floor the build fails."""
    program("readelf", "binutils")
    (tmp_path / "text").write_text("no program")
    shutil.copy(program("ls", "coreutils"), tmp_path / "tool")
    check_floor(tmp_path, "99.0")
    assert "1 ELF files need at most glibc 2." in capsys.readouterr().err
    with pytest.raises(SystemExit, match="later glibc than 2.0:\n  tool"):
        check_floor(tmp_path, "2.0")


def test_common_files_are_removed_from_server_tree(tmp_path: Path) -> None:
    """What the node's package has stays out of the server's, with directories that become empty."""
    node, server = tmp_path / "node", tmp_path / "server"
    for tree in (node, server):
        (tree / "lib" / "both").mkdir(parents=True)
        (tree / "lib" / "both" / "module.py").touch()
        (tree / "link").symlink_to("lib")
    (server / "lib" / "store.py").touch()
    remove_common(server, node)
    assert [path.relative_to(server) for path in server.rglob("*") if not path.is_dir()] == [
        Path("lib/store.py")
    ]
    assert not (server / "lib" / "both").exists()


def test_archives_of_same_tree_are_identical(tmp_path: Path) -> None:
    """Whenever they are packed, and by whom."""
    tree = tmp_path / "tree"
    tree.mkdir()
    archives = [tmp_path / "1.tar.gz", tmp_path / "2.tar.gz"]
    for number, archive in enumerate(archives):
        (tree / "file").write_text("same")
        (tree / "file").touch()
        pack(archive, tree, f"top-{number // 2}", 1_700_000_000)
    assert archives[0].read_bytes() == archives[1].read_bytes()
    with tarfile.open(archives[0]) as first:
        assert {member.mtime for member in first} == {1_700_000_000}


def test_packages_have_every_unit() -> None:
    """A unit that is added is in one of the packages."""
    ours = {path.name for path in (ROOT / "bridges/systemd").glob("*.service")}
    assert sorted(ours) == sorted(UNITS["node"] + UNITS["server"])


@pytest.mark.parametrize("script", ["postinstall", "postremove", "preremove", "ccpipe"])
def test_scripts_of_packages_parse(script: str) -> None:
    """A mistake in one would break the package manager."""
    done = subprocess.run(
        ["sh", "-n", DESCRIPTIONS / script], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_newest_source_package_is_tried_first() -> None:
    """Numbers within versions are compared as such."""
    versions = ["3.5.10-1", "3.5.9-1", "3.13.5-2+deb13u5"]
    assert sorted(versions, key=natural) == ["3.5.9-1", "3.5.10-1", "3.13.5-2+deb13u5"]
