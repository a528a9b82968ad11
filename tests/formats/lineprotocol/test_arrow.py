"""``Lines.to_arrow``: the columns hold exactly what the messages hold."""

from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.formats.lineprotocol import to_lines
from ccpipe.formats.lineprotocol.arrow import SCHEMA, TAG_COLUMNS
from ccpipe.message import Message, Uint

messages = st.lists(st.from_type(Message), max_size=8)


def _expected(message: Message) -> dict[str, Any]:
    value, number = message.value, not isinstance(message.value, str)
    plain = isinstance(value, int) and not isinstance(value, bool | Uint)
    return {
        "time": message.time,
        "name": message.name,
        "field": message.field,
        **{tag.replace("-", "_"): message.tags.get(tag) for tag in TAG_COLUMNS},
        "tags": [(k, v) for k, v in message.tags.items() if k not in TAG_COLUMNS],
        "value": float(value) if number else None,
        "int": value if plain else None,
        "uint": int(value) if isinstance(value, Uint) else None,
        "bool": value if isinstance(value, bool) else None,
        "text": None if number else value,
    }


@given(messages, st.sampled_from(TAG_COLUMNS), st.slices(8))
def test_the_table_says_what_the_messages_say(
    records: list[Message], tag: str, rows: slice
) -> None:
    """Every value exactly and of its type; missing texts and tags are null."""
    records = [
        Message(m.name, {tag: "x", **m.tags} if i % 2 else m.tags, m.value, m.time, m.field)
        for i, m in enumerate(records)
    ]
    records = [
        Message(m.name, dict(sorted(m.tags.items())), m.value, m.time, m.field) for m in records
    ]
    table = to_lines(records)[rows].to_arrow()
    assert table.schema == SCHEMA
    times = table["time"].cast(pa.int64()).to_pylist()
    table = table.set_column(0, "time", pa.array(times, pa.int64()))
    assert table.to_pylist() == [_expected(m) for m in records[rows]]
