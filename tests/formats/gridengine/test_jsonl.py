"""JSON lines of every release: known and unknown keys, odd bytes, and why a line is rejected."""

import pytest

from ccpipe.formats.gridengine.record import Outcome, Variant
from tests.formats.gridengine.accounting_samples import data, data_line, one, reason


def test_every_generation_of_json_lines_is_read() -> None:
    """All 24 derived lines are read; the old container's name is known and its values kept."""
    reading = data("derived.jsonl")
    assert (len(reading.records), reading.rejected) == (24, [])
    oldest = reading.records[0]
    assert oldest.origin.variant is Variant.JSONL_90
    assert oldest.usage["eusage"]["maxrss"] == 50262016.0
    assert oldest.start_time == 1787650001234567000
    assert [str(r.outcome) for r in reading.records if r.outcome is not Outcome.COMPLETED] == [
        "failed", "cancelled", "timeout", "failed", "start_failed", "node_fail", "requeued",
        "failed",
    ]  # fmt: skip


def test_custom_usage_and_awkward_strings_are_kept() -> None:
    """Custom containers stay whole, numbers and texts, also an empty one; so do odd strings."""
    records = data("derived.jsonl").records
    custom = [name for r in records for name in r.usage if name not in {"rusage", "eusage"}]
    assert custom == ["gpu", "info", "gpu"]
    assert records[18].usage["info"]["app_name"] == "lammps"
    assert records[19].usage["gpu"] == {}
    assert "\t" in str(records[20].submit_cmd_line)


def test_bytes_that_are_not_utf8_are_kept() -> None:
    """A latin-1 name is read, and can be written as the byte it was."""
    (record,) = data("derived/derived-latin1.jsonl").records
    assert record.job_name.encode("utf-8", "surrogateescape") == b"caf\xe9"


def test_unknown_keys_are_kept() -> None:
    """A key that no release has written so far is kept with its value."""
    line = data_line("derived.jsonl").replace(b'"owner"', b'"colour":[1,{"a":2}],"owner"')
    assert one(line).extra == {"colour": [1, {"a": 2}]}


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ('{"job_number":1}', "missing required field `start_time`"),
        ('{"job_number":"1"}', "job_number: Expected `int`, got `str`"),
        ('{"a":NaN}', "NaN is not a JSON number"),
        ('{"a":1e999}', "1e999 is beyond the range of a double"),
        ("{" * 100_000, "not JSON"),
    ],
)
def test_json_that_is_no_record_is_rejected_with_its_reason(line: str, why: str) -> None:
    """JSON with a missing key, a wrong type or an impossible number is rejected by name."""
    assert why in reason(line)
