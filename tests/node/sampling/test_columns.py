"""The messages of a sample as columns, compared with encoding each message by itself."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import astuple

from ccpipe.formats.lineprotocol import series, to_lines
from ccpipe.formats.lineprotocol.builder import MessageColumns, TaggedRecords
from ccpipe.message import Message, Uint, metric
from ccpipe.node.collectors.cpu import Cpu
from ccpipe.node.collectors.memory import Memory
from ccpipe.node.collectors.network import Network
from ccpipe.node.collectors.storage.disk import Disk
from ccpipe.node.sampling.collector import Collector
from tests.node.conftest import Root

SITE = {"cluster": "fritz", "hostname": "f0101", "type": "node"}
UNITS = {"m": "W", "mem_used": "kB"}


def tagged(part: TaggedRecords) -> list[Message]:
    """Return the messages with all their tags."""
    found = []
    for name, own, *rest in map(astuple, part.records):
        unit = {"unit": part.units[name]} if name in part.units else {}
        found.append(
            Message(name, dict(sorted({**unit, **(part.tags or {}), **own}.items())), *rest)
        )
    return found


def assert_same(columns: MessageColumns, parts: Sequence[TaggedRecords]) -> None:
    """Compare with the messages of all parts, encoded and decoded one by one."""
    lines = columns(parts)
    one_by_one = to_lines([message for part in parts for message in tagged(part)])
    key = repr
    assert sorted(lines, key=key) == sorted(one_by_one, key=key)
    rejected = [
        [(each.reason, each.original) for each in of.rejected] for of in (lines, one_by_one)
    ]
    assert sorted(rejected[0]) == sorted(rejected[1])


TEXTS = st.sampled_from(["m", "a b", "x,y", "k=v", "", "#m", "a\\", "a\nb", "ü", "\ud800"])
VALUES = (
    st.integers(-(2**65), 2**65)
    | st.floats()
    | st.booleans()
    | st.integers(0, 2**64).map(Uint)
    | st.sampled_from(["text", 'a "b"', "\ud800"])
)
MESSAGES = st.builds(
    Message,
    TEXTS,
    st.dictionaries(st.sampled_from(["type", "hostname", "stype", "a b"]), TEXTS, max_size=3),
    VALUES,
    st.none() | st.integers(0, 2**62) | st.just(2**64),
    st.sampled_from(["value", "value", "event", "other"]),
)


@given(st.lists(st.lists(MESSAGES, max_size=5), max_size=3))
def test_columns_equal_messages_encoded_one_by_one(samples: list[list[Message]]) -> None:
    """Also in the second sample, for which the series are known; invalid ones are rejected."""
    columns = MessageColumns()
    for _ in range(2):
        assert_same(columns, [TaggedRecords(messages, SITE, UNITS) for messages in samples])


def test_columns_of_recorded_node_equal_messages(root: Root) -> None:
    """Every metric of collectors over two captured readings."""
    root.show("captured/first")
    collectors: list[Collector] = [
        Cpu(hwthreads=["*"], root=str(root)),
        Disk(root=str(root)),
        Memory(domains=True, root=str(root)),
        Network(exclude=[], root=str(root)),
    ]
    columns = MessageColumns()
    for time, tree in enumerate(("captured/first", "captured/second")):
        root.show(tree)
        assert_same(
            columns, [TaggedRecords(list(each.collect(time)), SITE, UNITS) for each in collectors]
        )


def test_columns_encode_series_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not again in the next sample; after a change of the common tags all of them."""
    encoded: list[str] = []
    write = series.write_series

    def counted(name: str, tags: dict[str, str]) -> bytes:
        encoded.append(name)
        return write(name, tags)

    monkeypatch.setattr("ccpipe.formats.lineprotocol.builder.write_series", counted)
    columns = MessageColumns()
    for time in range(3):
        messages = [metric(name, time, time=time, tags={"type": "node"}) for name in "abc"]
        assert len(columns([TaggedRecords(messages, SITE)])) == 3
    assert encoded == ["a", "b", "c"]
    [first, *_] = columns([TaggedRecords(messages, {**SITE, "rack": "r1"})])
    assert first.tags["rack"] == "r1"
    assert encoded == ["a", "b", "c"] * 2


def test_columns_forget_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs come and go."""
    monkeypatch.setattr("ccpipe.formats.lineprotocol.builder._MAX_DEVICES", 10)
    columns = MessageColumns()
    for job in range(50):
        messages = [metric("m", 1, time=5, tags={"type": "node", "stype-id": f"{job}"})]
        [message] = columns([TaggedRecords(messages, SITE)])
        assert message.tags["stype-id"] == f"{job}"
        assert len(columns._codes) <= 11


def test_columns_replace_full_table() -> None:
    """Series of ended jobs do not stay in memory; lines keep the table of their codes."""
    columns = MessageColumns()
    table = columns._table
    table.cap = 10
    for job in range(30):
        messages = [metric("m", 1, time=5, tags={"type": "node", "stype-id": f"{job}"})]
        [message] = columns([TaggedRecords(messages, SITE)])
        assert message.tags["stype-id"] == f"{job}"
    assert columns._table is not table
