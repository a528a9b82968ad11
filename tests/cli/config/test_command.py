"""``ccpipe config show``: the effective configuration and the origin of each value."""

import json
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.cli.config.command import Setting, leaves, settings, tree, write_toml
from ccpipe.cli.console.options import SiteOptions
from ccpipe.config import Site, load
from tests.cli.command import ccpipe

TOML = """
cluster = "fox.a"
[publish]
interval = "5s"
[publish.tags]
room = "x # y"
[publish.collectors.disk]
exclude = ["a", "b"]
[bus]
servers = ["nats://someone:hunter2@h:4222"]
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "site.toml"
    path.write_text(TOML)
    return path


def origins(where: SiteOptions) -> dict[str, str]:
    return {".".join(s.path): s.origin for s in settings(where, where.path())}


def test_config_show_names_origin_of_each_value(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Default, file, environment or flag: the one with the highest priority."""
    monkeypatch.setenv("CCPIPE_PUBLISH__JITTER", "1s")
    monkeypatch.setenv("CCPIPE_PUBLISH__TAGS__ROW", "7")
    monkeypatch.setenv("CCPIPE_CLUSTER", "loses")
    found = origins(SiteOptions(config=file, cluster="wins"))
    assert found["cluster"] == "flag"
    assert found["publish.interval"] == f"file {file}"
    assert found["publish.collectors.disk.exclude"] == f"file {file}"
    assert found["publish.jitter"] == "environment CCPIPE_PUBLISH__JITTER"
    assert found["publish.tags.row"] == "environment CCPIPE_PUBLISH__TAGS__ROW"
    assert found["publish.tags.room"] == f"file {file}"
    assert found["bus.jetstream"] == "default"


def test_config_show_prints_valid_configuration_file(file: Path, tmp_path: Path) -> None:
    """It has every setting, and loading it gives the same settings, except for the masked URL."""
    shown = ccpipe("config", "show", "--config", file, "--server", "nats://h:1")
    assert shown.code == 0
    again = tmp_path / "again.toml"
    again.write_text(shown.out)
    flags = {"bus.servers": ["nats://h:1"]}
    assert load(again, Site, environ={}) == load(file, Site, flags=flags, environ={})


def test_json_separates_values_and_origins(file: Path) -> None:
    """Programs need not parse comments."""
    shown = json.loads(ccpipe("config", "show", "--config", file, "-o", "json").out)
    assert shown["file"] == str(file)
    assert shown["configuration"]["publish"]["interval"] == "5s"
    assert shown["origins"]["publish.interval"] == f"file {file}"


def test_config_show_masks_passwords_in_urls(file: Path) -> None:
    """The output may be pasted into a ticket."""
    for output in ("toml", "json"):
        shown = ccpipe("config", "show", "--config", file, "-o", output).out
        assert "nats://***@h:4222" in shown
        assert "hunter2" not in shown


def test_config_show_reports_unknown_key(tmp_path: Path) -> None:
    """With the file, the key and a suggestion; exit code 78."""
    path = tmp_path / "site.toml"
    path.write_text("[publish]\nintervall = 1")
    shown = ccpipe("config", "show", "--config", path)
    assert (shown.code, shown.out) == (78, "")
    assert f"{path}: publish: unknown key 'intervall'; did you mean 'interval'?" in shown.err


KEYS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=5)
SCALARS = (
    st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(KEYS, VALUES, max_size=4))
def test_toml_round_trip_keeps_any_settings(whole: dict[str, object]) -> None:
    """Any keys and texts are quoted correctly."""
    found = [Setting(path, value, "default") for path, value in leaves(whole)]
    assert tomllib.loads("\n".join(write_toml(found))) == whole
    assert tree(found) == whole
