"""Properties of every rule: select, drop, rename, tag, convert and aggregate."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.formats.lineprotocol import Lines, Series, SeriesTable, decode, encode, to_lines
from ccpipe.formats.lineprotocol.decoder import decode_in_python
from ccpipe.formats.lineprotocol.series import SeriesByNumber
from ccpipe.message import Message
from ccpipe.pipeline import Translator
from ccpipe.registry import build
from ccpipe.translate.rules.aggregate import Aggregate
from ccpipe.translate.rules.convert import Convert
from ccpipe.translate.rules.relabel import Rename, Tag
from ccpipe.translate.rules.select import Drop, Select
from tests.translate.records import MESSAGES

TOPOLOGY = [
    {"core": "0", "socket": "0"},
    {"core": "1", "socket": "0"},
    {"core": "2", "socket": "1"},
]
RULES: list[Callable[[], Translator[Any, Any]]] = [
    lambda: Drop(names=["cpu_*"], tags={"type": "node"}),
    lambda: Rename(names={"cpu_*": "*_of_cpu", "job": "task"}, tags={"hostname": "e*"}),
    lambda: Rename(names={"cpu_load": "cpu_user"}),
    lambda: Tag(add={"type": "socket", "a b": "c,d"}, remove=["hostname"], names=["cpu_*"]),
    lambda: Tag(remove=["type", "cluster"]),
    lambda: Convert(to="GB", unit="KiB", names=["mem*"]),
    lambda: Convert(to="bytes", units={"cpu_load": "KiB", "cpu_user": "GB", "job": "W"}),
    lambda: Aggregate(function="sum", of="core", per="node"),
    lambda: Aggregate(function="max", of="core", per="socket", topology=TOPOLOGY),
    lambda: Aggregate(function="mean", of="core", per="node", name="all", min_parts=2),
]  # fmt: skip
BATCHES = st.lists(st.lists(MESSAGES, max_size=10), max_size=3)


def exactly(records: Any) -> list[tuple[Message, type]]:
    """Return records with the types of their values: 1 and 1.0 are encoded differently."""
    return [(message, type(message.value)) for message in records]


@given(st.sampled_from(RULES), BATCHES, st.booleans())
def test_rules_treat_columns_and_messages_alike(
    rule: Callable[[], Translator[Any, Any]], batches: list[list[Message]], one_table: bool
) -> None:
    """The result is independent of the input's form, and the input is unchanged."""
    rule_of_many = rule()
    table = SeriesTable()
    for batch in batches:
        lines = Lines.concat([Lines(table=table) if one_table else Lines(), to_lines(batch)])
        messages = list(lines)
        passed = rule_of_many.feed(lines)
        assert exactly(passed) == exactly(rule().feed(to_lines(messages)))
        assert exactly(lines) == exactly(messages)


@given(st.sampled_from(RULES), st.lists(MESSAGES, max_size=10))
def test_rules_encode_columns_as_their_messages(
    rule: Callable[[], Translator[Any, Any]], batch: list[Message]
) -> None:
    """No old bytes pass through; the result can be encoded if the input could."""
    passed = rule().feed(decode(encode(batch, precision="ns"), precision="ns"))
    assert encode(passed, precision="ns") == encode(list(passed), precision="ns")
    assert passed.passthrough() in (None, encode(passed, precision="ns"))


@given(st.sampled_from(RULES), st.lists(MESSAGES, max_size=10))
def test_rules_keep_order_and_add_only_aggregates(
    rule: Callable[[], Translator[Any, Any]], batch: list[Message]
) -> None:
    """Records keep time, field and order; only aggregates are added, at the end."""
    translator, lines = rule(), to_lines(batch)
    places = [(message.time, message.field) for message in lines]
    passed = [(message.time, message.field) for message in translator.feed(lines)]
    if isinstance(translator, Drop):
        rest = iter(places)
        assert all(place in rest for place in passed)  # a part of them, in their order
    else:
        assert passed[: len(places)] == places
        added = passed[len(places) :]
        assert not added or isinstance(translator, Aggregate)
        assert all(place in places for place in added)


@given(st.sampled_from(RULES), st.lists(MESSAGES, max_size=10))
def test_rules_other_than_convert_keep_values(
    rule: Callable[[], Translator[Any, Any]], batch: list[Message]
) -> None:
    translator, lines = rule(), to_lines(batch)
    batch, passed = list(lines), list(translator.feed(lines))
    if isinstance(translator, Rename | Tag | Aggregate):
        assert [m.value for m in passed[: len(batch)]] == [m.value for m in batch]
    elif isinstance(translator, Convert):
        for old, new in zip(batch, passed, strict=True):
            assert new == old or new.tags["unit"] == translator.to
    if isinstance(translator, Rename | Convert | Aggregate):
        assert [other_tags(m) for m in passed[: len(batch)]] == [other_tags(m) for m in batch]


def other_tags(message: Message) -> dict[str, str]:
    return {key: value for key, value in message.tags.items() if key != "unit"}


def test_rules_keep_rejected_lines() -> None:
    lines = decode(b"broken\ncpu_load,hostname=e1,type=core,type-id=0 value=3 1740027951\n")
    for rule in RULES:
        assert rule().feed(lines).rejected == lines.rejected


@pytest.mark.parametrize(
    ("name", "options", "cls"),
    [
        ("drop", {"names": ["x"]}, Drop),
        ("rename", {"names": {"x": "y"}}, Rename),
        ("tag", {"add": {"x": "y"}}, Tag),
        ("convert", {"to": "GB"}, Convert),
        ("aggregate", {"function": "sum", "of": "hwthread", "per": "node"}, Aggregate),
    ],
)
def test_recipe_can_use_each_rule(name: str, options: dict[str, Any], cls: type[Any]) -> None:
    """Each is registered; those that need units or topology of the node get them."""
    place = {"where": "ccpipe.toml", "path": "publish.translate[0]"}
    for context in ({}, {"units": {"x": "kB"}, "topology": TOPOLOGY}):
        made = build("translators", {"use": name, **options}, context=context, **place)
        assert type(made) is cls


class CountingList(list[Any]):
    """A list that counts look-ups and cannot be iterated."""

    lookups = 0

    def __getitem__(self, index: Any) -> Any:
        self.lookups += 1
        return super().__getitem__(index)

    def __iter__(self) -> Iterator[Any]:
        pytest.fail("the rule went through all that the table has")


class CountingSeries(SeriesByNumber):
    """Series that count look-ups and cannot be iterated."""

    lookups = 0

    def __getitem__(self, code: int) -> Series:
        self.lookups += 1
        return super().__getitem__(code)

    def __iter__(self) -> Iterator[Any]:
        pytest.fail("the rule went through all that the table has")


def lookups(rule: Callable[[], Translator[Any, Any]], known: int) -> tuple[int, int]:
    payload = b"".join(
        b'cpu_load,hostname=e1,type=core,type-id=%d value=%d,load=1,event="x" 1740027951\n' % (i, i)
        for i in range(3)
    )
    table = SeriesTable()
    for number in range(known):
        table.add(b"m%d,hostname=x" % number)
        table.add_field(b"f%d" % number)
    batch = decode_in_python(payload, table, "s", lenient=False)
    table.series, table.fields = CountingSeries(table), CountingList(table.fields)
    translator = rule()
    for _ in range(3):
        translator.feed(batch)
    return table.series.lookups, table.fields.lookups


@pytest.mark.parametrize(
    "rule",
    [
        *RULES,
        lambda: Select(kinds=["metric"], names=["cpu_*"], numeric=True),
        lambda: Drop(kinds=["event"]),
    ],
)
def test_batch_time_depends_on_its_content_only(rule: Callable[[], Translator[Any, Any]]) -> None:
    """A publisher of random field names and series does not slow down every later payload."""
    series, fields = lookups(rule, 0)
    assert lookups(rule, 2000) == (series, fields)
    assert series <= 2 * 3  # two decisions for each series, once
    assert fields <= 2 * 3 * 3  # each of the fields at most twice in each of the batches
