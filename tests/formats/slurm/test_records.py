"""Records of jobs and steps."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.formats.slurm.records import Allocation, LiveJob, SacctRow, SlurmId

RECORDS = [Allocation(node_list="c1"), LiveJob(SlurmId(3)), SacctRow(SlurmId(3))]
KINDS = [type(record).__name__ for record in RECORDS]


@pytest.mark.parametrize("record", RECORDS, ids=KINDS)
def test_what_no_command_printed_is_none_or_empty(record: msgspec.Struct) -> None:
    first, *others = record.__struct_fields__
    assert first in ("id", "node_list")
    assert all(getattr(record, name) in (None, (), {}) for name in others)


@pytest.mark.parametrize(("shown", "is_step"), [("3", False), ("3.batch", True), ("13_1.0", True)])
def test_a_row_is_of_a_job_or_of_a_step(shown: str, *, is_step: bool) -> None:
    assert SacctRow(SlurmId.read(shown)).is_step is is_step


@given(st.integers(0, 2**50), st.integers(0, 10_000), st.integers(0, 10_000))
def test_requested_memory_is_that_of_the_whole_job(memory: int, cpus: int, nodes: int) -> None:
    expected = {"job": memory, "cpu": memory * cpus, "node": memory * nodes}
    for of, total in expected.items():
        row = SacctRow(SlurmId(3), req_mem=memory, req_mem_of=of, req_cpus=cpus, req_nodes=nodes)
        assert row.requested_memory == total


def test_requested_memory_needs_all_its_factors() -> None:
    for row in (
        SacctRow(SlurmId(3), req_mem_of="job"),
        SacctRow(SlurmId(3), req_mem=2**30, req_cpus=2),
        SacctRow(SlurmId(3), req_mem=2**30, req_mem_of="cpu", req_nodes=2),
        SacctRow(SlurmId(3), req_mem=2**30, req_mem_of="node", req_cpus=2),
    ):
        assert row.requested_memory is None
