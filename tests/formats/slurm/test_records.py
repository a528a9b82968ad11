"""Records of what slurmctld knows now."""

import msgspec
import pytest

from ccpipe.formats.slurm.job_id import SlurmId
from ccpipe.formats.slurm.records import Allocation, LiveJob, Node, Partition

RECORDS = [
    Allocation(node_list="c1"),
    LiveJob(SlurmId(3)),
    Node(name="c1"),
    Partition(name="normal"),
]
KINDS = [type(record).__name__ for record in RECORDS]


@pytest.mark.parametrize("record", RECORDS, ids=KINDS)
def test_what_no_command_printed_is_none_or_empty(record: msgspec.Struct) -> None:
    """Only what names the record is required; nothing is invented for the rest."""
    first, *others = record.__struct_fields__
    assert first in ("id", "name", "node_list")
    assert all(getattr(record, name) in (None, ()) for name in others)


@pytest.mark.parametrize("record", RECORDS, ids=KINDS)
def test_records_are_values(record: msgspec.Struct) -> None:
    """They are immutable, and equal ones are one in a set."""
    copy = msgspec.structs.replace(record)
    assert copy is not record
    assert {copy, record} == {record}
    with pytest.raises(AttributeError, match="immutable"):
        setattr(record, record.__struct_fields__[0], "other")
