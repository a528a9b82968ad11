"""``Envelopes``: size, rejected parts, dead letters and Arrow table."""

from datetime import UTC, datetime

import pytest
from msgspec.structs import replace

from ccpipe.errors import DataError
from ccpipe.formats.sonar import Envelopes, ErrorObject, decode
from ccpipe.formats.sonar.arrow import FIRST
from ccpipe.formats.sonar.types.envelope import Envelope
from tests.formats.sonar import examples
from tests.formats.sonar.examples import one
from tests.paths import TEST_DATA

PAYLOAD = (examples.CLUSTER + "\n" + '{"data":7}\n' + examples.ERROR).encode()


def batch() -> Envelopes:
    return decode(PAYLOAD)


def test_batch_is_list_with_size_and_rejected() -> None:
    """Each rejected item has its reason, bytes and position in the payload."""
    made = batch()
    assert (made.name, len(made), made.size) == ("envelopes", 2, len(PAYLOAD))
    (bad,) = made.rejected
    assert bad.reason == "$.data: expected `object | null`, got `int`: 7"
    assert (bad.original, bad.line) == (b'{"data":7}', 2)
    assert bad.offset == PAYLOAD.index(b'{"data":7}')


def test_reason_joins_all_broken_rules() -> None:
    """With semicolons."""
    broken = examples.CLUSTER.replace("fox.educloud.no", "").replace('"normal"', '""')
    (bad,) = decode(broken.encode(), strict=True).rejected
    assert bad.reason == "; ".join(map(str, bad.problems))
    assert len(bad.problems) == 2


def test_original_is_json_or_repr() -> None:
    """The ``repr()`` keeps the contents of an envelope that cannot be encoded."""
    made = batch()
    assert decode(made.original(1)) == [made[1]]
    assert not made.original(1).endswith(b"\n")
    broken = replace(one(examples.SYSINFO), data=None)
    assert Envelopes([broken]).original(0).startswith(b"SysinfoEnvelope(meta=")
    odd = replace(one(examples.ERROR), unknown={("x",): "\ud800"})
    assert b"\\ud800" in Envelopes([odd]).original(0)


def test_table_has_columns_for_fields_of_data() -> None:
    """Of all types together; missing fields are null."""
    envelopes = decode((TEST_DATA / "sonar/recorded.json").read_bytes())
    table = envelopes.to_arrow()
    assert table.column_names[:4] == list(FIRST)
    sample, sysinfo, error = table.to_pylist()
    assert sample["type"] == "sample"
    assert sample["time"] == datetime(2026, 11, 22, 12, 43, 6, tzinfo=UTC)
    assert sample["system"]["cpus"] == [12647, 13900]
    assert sample["jobs"][0]["processes"][0]["cmd"]
    assert (sample["cores_per_socket"], sysinfo["jobs"]) == (None, None)
    assert sysinfo["cores_per_socket"] > 0
    assert error["errors"][0]["detail"]
    assert error["type"] is None


def test_every_type_has_table() -> None:
    """Alone and together."""
    for text in (*examples.ALL, "\n".join(examples.ALL)):
        envelopes = decode(text.encode())
        table = envelopes.to_arrow()
        types = [None if each.data is None else each.data.type for each in envelopes]
        assert table.column("type").to_pylist() == types
        assert len(table) == len(envelopes)


def test_table_without_envelopes_is_empty() -> None:
    """It has the common columns."""
    table = Envelopes().to_arrow()
    assert (len(table), table.column_names) == (0, list(FIRST))


def test_table_rejects_time_beyond_range_of_arrow() -> None:
    """The error names the column."""
    text = examples.CLUSTER.replace(examples.CLUSTER.split('"time":"')[1][:4], "9999", 1)
    with pytest.raises(DataError, match="column time: "):
        decode(text.encode()).to_arrow()
    assert Envelopes([Envelope(errors=(ErrorObject(detail="x"),))]).to_arrow()["errors"]
