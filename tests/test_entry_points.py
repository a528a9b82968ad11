"""What installed packages offer, as ``importlib.metadata`` finds it."""

import importlib
import json
from importlib import metadata
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ccpipe.entry_points import EntryPoint, entry_points
from ccpipe.registry import GROUPS

NAME = st.text("abc_-.9", min_size=1, max_size=4)
LINE = st.one_of(
    st.builds("{}={}:{}".format, NAME, st.just("mod.ule"), st.sampled_from(["A", "A.b", "A [x]"])),
    st.builds("  {} =  {}:C ".format, NAME, NAME),
    st.sampled_from(["", "# a = b:C", "[ccpipe.sinks]", "[ccpipe.sources]", "[ccpipe]"]),
)


def as_metadata_finds_them(group: str) -> dict[str, str]:
    """Return values by name."""
    found = metadata.entry_points(group=f"ccpipe.{group}")
    return {entry.name: entry.value for entry in sorted(found, key=lambda entry: entry.name)}


def as_we_find_them(group: str) -> dict[str, str]:
    """Return the same as found by ccpipe."""
    return {name: entry.value for name, entry in entry_points(group).items()}


def install(folder: Path, package: str, text: str) -> Path:
    """Lay down the metadata of a package; return its folder."""
    info = folder / package
    info.mkdir(exist_ok=True)
    name = package.partition("-")[0]
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n")
    (info / "entry_points.txt").write_text(text)
    importlib.invalidate_caches()
    return info


@pytest.mark.parametrize("group", GROUPS)
def test_what_is_installed_here(group: str) -> None:
    """Names, values and order."""
    found = entry_points(group)
    assert list(as_we_find_them(group).items()) == list(as_metadata_finds_them(group).items()) != []
    assert {entry.name: entry.module for entry in found.values()} == {
        entry.name: entry.module for entry in metadata.entry_points(group=f"ccpipe.{group}")
    }


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)
@given(lines=st.lists(LINE, max_size=12))
def test_any_list(lines: list[str], tmp_path: Path) -> None:
    """Sections, comments, spaces; of two lines with one name the last one counts."""
    install(tmp_path, "other-1.dist-info", "\n".join(["[ccpipe.sinks]", *lines]))
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(tmp_path))
        importlib.invalidate_caches()
        for group in ("sinks", "sources"):
            assert as_we_find_them(group) == as_metadata_finds_them(group)


@pytest.mark.parametrize("other", ["same_Name-2.dist-info", "same_name.egg-info"])
def test_a_package_that_hides_another_one(
    other: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of one that is installed twice, that counts which Python would import."""
    for folder, package, module in (("b", other, "later"), ("a", "same_name-1.dist-info", "first")):
        (tmp_path / folder).mkdir()
        install(tmp_path / folder, package, f"[ccpipe.sinks]\n{module} = {module}:Sink\n")
        monkeypatch.syspath_prepend(str(tmp_path / folder))
    assert as_we_find_them("sinks") == as_metadata_finds_them("sinks")
    assert "first" in entry_points("sinks")
    assert "later" not in entry_points("sinks")


def test_folders_that_are_not_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An archive, a folder that is missing and the working directory stand in the path too."""
    (tmp_path / "archive.zip").write_bytes(b"PK")
    install(tmp_path, "here-1.dist-info", "[ccpipe.sinks]\nhere = here:Sink\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [str(tmp_path / "archive.zip"), "/no/such/folder", ""])
    assert as_we_find_them("sinks") == {"here": "here:Sink"}


@pytest.mark.parametrize(
    ("value", "found"),
    [("json:loads", json.loads), ("json : JSONDecoder.decode [fast]", json.JSONDecoder.decode)],
)
def test_loading(value: str, found: object, tmp_path: Path) -> None:
    """A class may stand inside another one; extras are none of ours."""
    assert EntryPoint("x", value, tmp_path).load() is found


@pytest.mark.parametrize(
    ("value", "error"), [("no_such:Sink", ImportError), ("json:Sink", AttributeError)]
)
def test_what_cannot_be_loaded(value: str, error: type[Exception], tmp_path: Path) -> None:
    """Whoever asked for it says so in his own words."""
    with pytest.raises(error):
        EntryPoint("x", value, tmp_path).load()
