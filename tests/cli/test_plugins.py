"""``ccpipe plugins``: what is installed, whether it works here, and its options."""

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
        maximum: Size | None = None,
        mode: Literal["a", "b"] = "a",
        tags: dict[str, list[int]] = {},  # noqa: B006 - a default as plug-ins write it
        site: object = None,
    ) -> None:
        """Connect to `url`."""


class Broken:
    """Stands for a plug-in whose module cannot be imported."""

    def __getattr__(self, name: str) -> object:
        raise MissingExtra("pyarrow", "parquet")


def offered(value: str) -> EntryPoint:
    return EntryPoint("null", value, "ccpipe.sinks")


def test_every_installed_part_is_listed_with_its_origin() -> None:
    """One row for each entry point of each group; all built-ins can be used here."""
    shown = json.loads(ccpipe("plugins", "-o", "json").out)
    assert [(p["group"], p["name"]) for p in shown] == [
        (group, name) for group in GROUPS for name in entry_points(group)
    ]
    assert {p["from"].split()[0] for p in shown} == {"ccpipe"}
    assert {p["name"]: p["problem"] for p in shown if p["problem"]} == {}


def test_the_table_shows_the_same_parts() -> None:
    """People see group, name, origin and whether it can be used."""
    rows = [line.split() for line in ccpipe("plugins").out.splitlines()]
    assert rows[0] == ["group", "name", "from", "here"]
    assert ["translators", "select"] in [row[:2] for row in rows]
    assert len(rows) == 1 + sum(len(entry_points(group)) for group in GROUPS)


def test_a_name_shows_docstring_options_types_and_defaults() -> None:
    """What a recipe's table may hold, without reading code; one name may be several parts."""
    shown = ccpipe("plugins", "select").out
    assert "Keeps the records that match" in shown
    assert "kinds     list of text   []" in shown
    both = ccpipe("plugins", "null").out
    assert "sources.null" in both
    assert "sinks.null" in both
    assert "sources.null" not in ccpipe("plugins", "sinks.null").out


def test_options_are_said_in_the_words_of_toml() -> None:
    """Types, defaults and what is required; what ccpipe itself gives is no option."""
    part = plugins.read("sinks", offered(f"{__name__}:Example"))
    assert part.problem == ""
    assert [(o.name, o.type, o.default, o.required) for o in part.options] == [
        ("url", "text", None, True),
        ("age", "duration (10s)", "90s", False),
        ("maximum", "size (4MiB)", None, False),
        ("mode", "'a' or 'b'", "a", False),
        ("tags", "table of list of integer", {}, False),
    ]
    assert "Connect to `url`." in part.help


def test_a_part_that_cannot_be_imported_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A missing extra is no crash of the list; nor is a plug-in that fails in its own way."""
    monkeypatch.setitem(sys.modules, "broken_plugin", Broken())
    missing = plugins.read("sinks", offered("broken_plugin:Sink"))
    assert missing.problem == str(MissingExtra("pyarrow", "parquet"))
    other = plugins.read("sinks", offered("no_such_module:Sink"))
    assert other.problem == "ModuleNotFoundError: No module named 'no_such_module'"


def test_an_unknown_name_is_refused_with_the_one_that_was_meant() -> None:
    """A typing mistake gets a suggestion and the exit code of wrong usage."""
    with pytest.raises(UsageError, match="did you mean 'parquet'"):
        plugins.wanted("parkuet")
    refused = ccpipe("plugins", "sinks.parkuet")
    assert refused.code == 64
    assert "did you mean 'parquet'" in refused.err


def test_colour_and_bold_stay_off_where_they_are_not_welcome() -> None:
    """A terminal gets a bold head; with NO_COLOR, or in a pipe, there is text only."""
    assert on_terminal("plugins").out.startswith("\x1b[1mgroup")
    assert "\x1b" not in on_terminal("plugins", NO_COLOR="1").out
    assert "\x1b" not in ccpipe("plugins").out
