"""The kernel's twin: lines as tables by Arrow's own arithmetic."""

from datetime import UTC, datetime

from ccpipe.formats.lineprotocol import to_lines
from ccpipe.message import Message, Uint
from ccpipe.sinks.parquet.in_python import LineColumns
from ccpipe.sinks.parquet.schema import DAY, SCHEMA

NOON = 1_740_052_800 * 10**9
MESSAGES = [
    Message("m", {"cluster": "a", "hostname": "n1", "x": "y"}, 1.5, NOON + 1),
    Message("m", {"cluster": "b", "hostname": "n2"}, 2**63 - 1, NOON + DAY),
    Message("e", {"cluster": "a"}, "text", NOON, "event"),
    Message("m", {}, Uint(2**64 - 1), -1),
    Message("m", {"cluster": "a"}, True, None),
]


def test_rows_are_grouped_by_cluster_and_day() -> None:
    """Days before the epoch are negative; a line without time or cluster has None."""
    groups = {
        (cluster, day): list(rows or ())
        for cluster, day, rows in LineColumns(to_lines(MESSAGES)).groups()
    }
    noon = NOON // DAY
    assert groups == {
        ("a", noon): [0, 2], ("b", noon + 1): [1], (None, -1): [3], ("a", None): [4],
    }  # fmt: skip
    [(_, _, rows)] = LineColumns(to_lines(MESSAGES[:1])).groups()
    assert rows is None


def test_values_of_each_type_are_exact() -> None:
    """Each in its column, and as a number in ``value`` where it is one."""
    table = LineColumns(to_lines(MESSAGES)).table(None)
    assert table.schema == SCHEMA
    rows = table.to_pylist()
    assert [row["value"] for row in rows] == [1.5, float(2**63 - 1), None, float(2**64 - 1), 1.0]
    assert [row["int"] for row in rows] == [None, 2**63 - 1, None, None, None]
    assert [row["uint"] for row in rows] == [None, None, None, 2**64 - 1, None]
    assert [row["bool"] for row in rows] == [None, None, None, None, True]
    assert [row["text"] for row in rows] == [None, None, "text", None, None]
    assert rows[0]["tags"] == [("x", "y")]


def test_a_time_is_microseconds_and_what_is_beyond() -> None:
    """Also before the epoch, where it is rounded down."""
    rows = LineColumns(to_lines(MESSAGES)).table(None).to_pylist()
    assert (rows[0]["time"], rows[0]["ns"]) == (datetime(2025, 2, 20, 12, tzinfo=UTC), 1)
    assert rows[3]["time"] == datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)
    assert rows[3]["ns"] == 999
    assert (rows[4]["time"], rows[4]["ns"]) == (None, None)


def test_some_rows_have_dictionaries_of_their_own() -> None:
    """No file holds names of another cluster's nodes."""
    table = LineColumns(to_lines(MESSAGES)).table([1])
    assert table["hostname"].combine_chunks().dictionary.to_pylist() == ["n2"]
