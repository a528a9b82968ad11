"""``Envelopes.to_arrow``: a row for each envelope, with its data as it is nested."""

from datetime import UTC, datetime

import pytest

from ccpipe.errors import DataError
from ccpipe.formats.sonar import Envelopes, ErrorObject, decode
from ccpipe.formats.sonar.arrow import FIRST
from ccpipe.formats.sonar.types.envelope import Envelope
from tests.formats.sonar import examples
from tests.paths import TEST_DATA


def test_columns_are_the_fields_of_the_data() -> None:
    """Those of all types beside each other; what an envelope lacks is null."""
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


def test_every_type_has_a_table() -> None:
    """Alone, and all together."""
    for text in (*examples.ALL, "\n".join(examples.ALL)):
        envelopes = decode(text.encode())
        table = envelopes.to_arrow()
        types = [None if each.data is None else each.data.type for each in envelopes]
        assert table.column("type").to_pylist() == types
        assert len(table) == len(envelopes)


def test_without_envelopes_the_table_is_empty() -> None:
    """It has the columns of every table."""
    table = Envelopes().to_arrow()
    assert (len(table), table.column_names) == (0, list(FIRST))


def test_a_time_that_arrow_cannot_hold_is_an_error() -> None:
    """With the column."""
    text = examples.CLUSTER.replace(examples.CLUSTER.split('"time":"')[1][:4], "9999", 1)
    with pytest.raises(DataError, match="column time: "):
        decode(text.encode()).to_arrow()
    assert Envelopes([Envelope(errors=(ErrorObject(detail="x"),))]).to_arrow()["errors"]
