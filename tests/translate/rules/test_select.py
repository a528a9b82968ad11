"""``ccpipe.translate.rules.select``: columns are selected as messages are."""

import fnmatch
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ccpipe.errors import ConfigError
from ccpipe.formats.lineprotocol import Lines, SeriesTable, decode, encode, to_lines
from ccpipe.message import Kind, Message, Uint
from ccpipe.registry import construct
from ccpipe.translate.rules.select import Drop, Select
from tests.translate.records import MESSAGES, TAGS

PATTERNS = ["*", "cpu_*", "cpu_load", "?ob", "[cj]*", "mem[[]0]", "x", ""]
TAG_PATTERNS = ["*", "f*", "e[0-9]", "node", "woody", "?", ""]
RULES = st.fixed_dictionaries(
    {},
    optional={
        "kinds": st.lists(st.sampled_from([str(kind) for kind in Kind]), max_size=3),
        "names": st.lists(st.sampled_from(PATTERNS), max_size=3),
        "clusters": st.lists(st.sampled_from(TAG_PATTERNS), max_size=3),
        "nodes": st.lists(st.sampled_from(TAG_PATTERNS), max_size=3),
        "tags": st.dictionaries(
            st.sampled_from([*TAGS, "stype"]), st.sampled_from(TAG_PATTERNS), max_size=2
        ),
        "numeric": st.booleans(),
    },
)


def is_wanted(message: Message, rules: dict[str, Any]) -> bool:
    """Decide about one message, in the simplest way: the reference for columns."""

    def fits(text: str | None, patterns: Sequence[str]) -> bool:
        if not text:
            return "" in patterns
        return any(fnmatch.fnmatchcase(text, p) for p in patterns)

    tags = message.tags
    return all(
        [
            not rules.get("kinds") or message.kind in rules["kinds"],
            not rules.get("names") or fits(message.name, rules["names"]),
            not rules.get("clusters") or fits(tags.get("cluster"), rules["clusters"]),
            not rules.get("nodes") or fits(tags.get("hostname"), rules["nodes"]),
            all(fits(tags.get(tag), [p]) for tag, p in rules.get("tags", {}).items()),
            not rules.get("numeric") or type(message.value) in (int, float, Uint),
        ]
    )


@given(st.lists(st.lists(MESSAGES, max_size=8), max_size=4), RULES, st.booleans())
def test_select_treats_columns_as_single_messages(
    batches: list[list[Message]], rules: dict[str, Any], one_table: bool
) -> None:
    """For any options, over several payloads, with one series table or several."""
    select = Select(**rules)
    table = SeriesTable()
    for batch in batches:
        lines = Lines(table=table) if one_table else Lines()
        lines = Lines.concat([lines, to_lines(batch)])
        expected = [message for message in lines if is_wanted(message, rules)]
        kept = select.feed(lines)
        assert isinstance(kept, Lines)
        assert list(kept) == expected
        assert list(map(type, (m.value for m in kept))) == [type(m.value) for m in expected]


def test_select_returns_same_records_if_all_match() -> None:
    """Nothing is copied."""
    lines = decode(b"cpu,hostname=a value=1 1\ncpu,hostname=b value=2 1\n")
    assert Select(kinds=["metric"], nodes=["[ab]"]).feed(lines) is lines


def test_select_builds_no_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = decode(b"cpu,hostname=a value=1 1\ncpu,hostname=b value=2 1\n")
    with monkeypatch.context() as patch:
        patch.setattr(Lines, "__getitem__", lambda *_: pytest.fail("a message was built"))
        kept = Select(nodes=["b"]).feed(lines)
    assert [message.hostname for message in kept] == ["b"]


def test_select_encodes_line_again_without_dropped_field() -> None:
    """Dropped fields must not return with the old bytes."""
    lines = decode(b"m,hostname=a value=1,load=2 1740027951\nm,hostname=b value=3 1740027951\n")
    kept = Select(kinds=["metric"]).feed(lines)
    assert isinstance(kept, Lines)
    assert kept.passthrough() is None
    assert b"load" not in encode(kept)


def test_select_keeps_bytes_of_whole_lines() -> None:
    """Dropping other lines does not require encoding."""
    lines = decode(b"m,hostname=b,a=1 value=1,load=2 1740027951\nm,hostname=c value=3 1740027951\n")
    kept = Select(nodes=["b"]).feed(lines)
    assert isinstance(kept, Lines)
    assert kept.passthrough() == b"m,hostname=b,a=1 value=1,load=2 1740027951\n"


def test_select_matches_missing_tag_with_empty_pattern_only() -> None:
    """``*`` requires the tag, the empty pattern requires that it is missing."""
    lines = decode(b"m value=1 1\nm,stype=job value=2 1\n")
    assert [m.value for m in Select(tags={"stype": "*"}).feed(lines)] == [2.0]
    assert [m.value for m in Select(tags={"stype": ""}).feed(lines)] == [1.0]
    assert list(Select(nodes=["*"]).feed(lines)) == []


@given(st.lists(MESSAGES, max_size=8), RULES)
def test_drop_is_complement_of_select(messages: list[Message], rules: dict[str, Any]) -> None:
    """Each record is kept by exactly one of ``select`` and ``drop`` with the same options."""
    rules = {key: value for key, value in rules.items() if key != "numeric"}
    assume(any(rules.values()))
    lines = to_lines(messages)
    kept, rest = Select(**rules).feed(lines), Drop(**rules).feed(lines)
    assert [m for m in lines if is_wanted(m, rules)] == list(kept)
    assert [m for m in lines if not is_wanted(m, rules)] == list(rest)


def test_drop_returns_same_records_if_none_match() -> None:
    """Nothing is copied where nothing is dropped."""
    lines = decode(b"cpu,hostname=a value=1 1740027951\n")
    drop = Drop(names=["mem"])
    assert drop.feed(lines) is lines


def test_drop_requires_an_option() -> None:
    """A rule that would drop everything is a mistake."""
    with pytest.raises(ConfigError, match="would drop everything"):
        Drop()


def test_select_rejects_unknown_kind_with_suggestion() -> None:
    """Wrong configuration is fatal before anything starts, and names file, key and suggestion."""
    with pytest.raises(ConfigError, match=r"^r\.toml: translate\[0\]: kinds: .*'metric'\?$"):
        construct(Select, {"kinds": ["metrics"]}, where="r.toml", path="translate[0]", context={})
