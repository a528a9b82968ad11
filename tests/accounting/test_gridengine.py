"""Grid Engine's records as scheduler-independent columns."""

import pytest

from ccpipe.accounting.gridengine import FIELDS, job_columns
from ccpipe.formats.gridengine.columns import from_records
from tests.accounting.accounting_records import POOL


@pytest.mark.parametrize("start", range(0, len(POOL), 100))
def test_outcomes_are_those_of_the_records(start: int) -> None:
    """Whether or not somebody deleted one of them."""
    some = POOL[start : start + 100]
    for records in (some, [record for record in some if record.deleted_by is None]):
        found = job_columns(from_records(records, FIELDS))
        assert found["outcome"].to_pylist() == [str(record.outcome) for record in records]
        ends = [record.is_final and not record.is_intermediate for record in records]
        assert found["ends_job"].to_pylist() == ends
