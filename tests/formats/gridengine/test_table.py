"""Records as an Arrow table: types, nulls, and what has no column."""

import json

from ccpipe.formats.gridengine.record import Accounting, Amount, Origin, Variant
from ccpipe.formats.gridengine.table import COLUMNS, SCHEMA, from_records
from tests.formats.gridengine.accounting_samples import data


def test_every_record_is_a_row_with_the_values_of_the_record() -> None:
    """Numbers, texts and times of the real file are in the columns of their names."""
    records = data("accounting").records
    table = from_records(records, SCHEMA.names)
    assert table.schema == SCHEMA
    for name in ("job_number", "owner", "project", "start_time", "pe_taskid", "category"):
        assert table[name].to_pylist() == [getattr(record, name) for record in records]
    assert table["cpu"].to_pylist() == [record.cpu for record in records]
    assert table["ru_wallclock"].to_pylist() == [record.wallclock for record in records]
    assert table["offset"].to_pylist() == [record.origin.offset for record in records]


def test_the_place_of_a_record_is_not_among_the_default_columns() -> None:
    """Line and offset come only where they are asked for."""
    assert from_records([]).schema.names == list(COLUMNS)
    assert {"line", "offset"}.isdisjoint(COLUMNS)


def test_usage_that_a_record_does_not_have_is_null() -> None:
    """Null is not 0: nothing was measured."""
    row = from_records([Accounting(job_number=1, usage={"eusage": {"mem": 0}})]).to_pylist()[0]
    assert (row["mem"], row["cpu"], row["ru_utime"]) == (0, None, None)
    assert (row["usage_json"], row["extra_json"]) == (None, None)


def test_what_has_no_column_is_kept_as_json() -> None:
    """Custom containers and names, texts among the usage, and unknown keys are in JSON."""
    usage: dict[str, dict[str, Amount]] = {
        "eusage": {"cpu": 1.5, "watts": 3, "mem": "much"},
        "gpu": {"cpu": 2},
    }
    record = Accounting(job_number=1, usage=usage, extra={"colour": [1]})
    row = from_records([record]).to_pylist()[0]
    assert (row["cpu"], row["mem"]) == (1.5, None)
    assert json.loads(row["usage_json"]) == {
        "eusage": {"watts": 3, "mem": "much"}, "gpu": {"cpu": 2},
    }  # fmt: skip
    assert json.loads(row["extra_json"]) == {"colour": [1]}


def test_bytes_that_are_not_utf8_become_replacement_characters() -> None:
    """Arrow's strings cannot hold them; JSON columns escape them instead."""
    record = Accounting(job_number=1, job_name="caf\udce9", extra={"x": "\udce9"})
    row = from_records([record]).to_pylist()[0]
    assert row["job_name"] == "caf\ufffd"
    assert row["extra_json"] == r'{"x":"\udce9"}'


def test_the_variant_is_that_of_the_origin() -> None:
    """Each row says in which format its record was written."""
    record = Accounting(job_number=1, origin=Origin(variant=Variant.UNIVA_52))
    assert from_records([record], ["variant"]).to_pylist() == [{"variant": "univa-52"}]
