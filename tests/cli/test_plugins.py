"""``ccpipe plugins``: the installed parts, whether each is usable, and their options."""

import json
import sys
from importlib.metadata import EntryPoint
from typing import Literal

import pytest

from ccpipe.cli import plugins
from ccpipe.config import Duration, Size
from ccpipe.errors import MissingExtra, UsageError
from ccpipe.registry import GROUPS, entry_points
from tests.cli.command import ccpipe, on_terminal


class Example:
    """Keeps nothing."""

    def __init__(
        self,
        *,
        url: str,
        age: Duration = Duration(90),
        pause: Duration = Duration(0),
        maximum: Size | None = None,
        mode: Literal["a", "b"] = "a",
        tags: dict[str, list[int]] = {},  # noqa: B006 - a default as plug-ins write it
        site: object = None,
    ) -> None:
        """Connect to `url`.

        Parameters
        ----------
        url
            Address of the store, such as
            ``http://db``.
        age, pause, maximum
            Limits.

        Raises
        ------
        ConfigError
            if there is none.

        """


class Broken:
    """Represents a plug-in whose module cannot be imported."""

    def __getattr__(self, name: str) -> object:
        raise MissingExtra("pyarrow", "parquet")


def offered(value: str) -> EntryPoint:
    return EntryPoint("null", value, "ccpipe.sinks")


def test_plugins_lists_installed_parts_with_origin() -> None:
    """One row for each entry point of each group; all built-ins are usable here."""
    shown = json.loads(ccpipe("plugins", "-o", "json").out)
    assert [(p["group"], p["name"]) for p in shown] == [
        (group, name) for group in GROUPS for name in entry_points(group)
    ]
    assert {p["from"].split()[0] for p in shown} == {"ccpipe"}
    assert {p["name"]: p["problem"] for p in shown if p["problem"]} == {}


def test_plugins_table_shows_group_name_origin_and_usability() -> None:
    rows = [line.split() for line in ccpipe("plugins").out.splitlines()]
    assert rows[0] == ["GROUP", "NAME", "FROM", "HERE"]
    assert ["translators", "select"] in [row[:2] for row in rows]
    assert len(rows) == 1 + sum(len(entry_points(group)) for group in GROUPS)


def test_plugins_shows_docstring_and_options_of_name() -> None:
    """With types and defaults; several parts may have the same name."""
    shown = ccpipe("plugins", "select").out
    assert "Keeps the records that match" in shown
    assert "  kinds  list of text\n      Categories: metric, event" in shown
    assert "Parameters" not in shown
    assert "``" not in shown
    both = ccpipe("plugins", "null").out
    assert "sources.null" in both
    assert "sinks.null" in both
    assert "sources.null" not in ccpipe("plugins", "sinks.null").out


def test_plugins_shows_types_of_options_in_toml_terms() -> None:
    """With defaults and whether required; without arguments supplied by ccpipe."""
    part = plugins.read("sinks", offered(f"{__name__}:Example"))
    assert part.problem == ""
    assert [(o.name, o.type, o.default, o.required) for o in part.options] == [
        ("url", "text", None, True),
        ("age", "duration", "90s", False),
        ("pause", "duration", 0, False),
        ("maximum", "size", None, False),
        ("mode", "one of `a`, `b`", "a", False),
        ("tags", "table: list of integer by name", {}, False),
    ]


def test_plugins_takes_meanings_from_parameters_of_docstrings() -> None:
    """The help is the prose of the class only."""
    part = plugins.read("sinks", offered(f"{__name__}:Example"))
    assert part.help == "Keeps nothing."
    assert [option.meaning for option in part.options] == [
        "Address of the store, such as `http://db`.", "Limits.", "Limits.", "Limits.", "", ""
    ]  # fmt: skip


def test_every_option_of_built_in_part_has_a_meaning() -> None:
    parts = [plugins.read(group, entry) for group, entry in plugins.everything()]
    missing = [
        f"{part.group}.{part.name}.{option.name}"
        for part in parts
        for option in part.options
        if part.cls.startswith("ccpipe.") and not option.meaning
    ]
    assert missing == []


def test_plugins_shows_what_to_install_for_missing_extra(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A plug-in that fails in another way does not break the list either."""
    monkeypatch.setitem(sys.modules, "broken_plugin", Broken())
    missing = plugins.read("sinks", offered("broken_plugin:Sink"))
    assert missing.problem == str(MissingExtra("pyarrow", "parquet"))
    other = plugins.read("sinks", offered("no_such_module:Sink"))
    assert other.problem == "ModuleNotFoundError: No module named 'no_such_module'"


def test_plugins_suggests_similar_name_for_unknown_one() -> None:
    """With the exit code of a usage error."""
    with pytest.raises(UsageError, match="did you mean 'parquet'"):
        plugins.wanted("parkuet")
    refused = ccpipe("plugins", "sinks.parkuet")
    assert refused.code == 64
    assert "did you mean 'parquet'" in refused.err


def test_plugins_colours_only_terminals_without_no_color() -> None:
    """The head is bold on a terminal only."""
    assert on_terminal("plugins").out.startswith("\x1b[1mGROUP")
    assert "\x1b" not in on_terminal("plugins", NO_COLOR="1").out
    assert "\x1b" not in ccpipe("plugins").out
