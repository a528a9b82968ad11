"""Filters and outcomes of Grid Engine's records."""

from collections.abc import Callable
from fnmatch import fnmatchcase

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ccpipe.accounting.gridengine import FIELDS, RecordSelection, job_columns
from ccpipe.formats.gridengine import Accounting
from ccpipe.formats.gridengine.columns import from_records
from tests.accounting.accounting_records import POOL, RECORDS, SECOND, START

Rule = Callable[[Accounting], bool]

CASES: list[tuple[RecordSelection, Rule]] = [
    (RecordSelection(texts={"owner": ("anna",)}), lambda r: r.owner == "anna"),
    (RecordSelection(texts={"owner": ("a*", "b?n")}), lambda r: r.owner in {"anna", "ben"}),
    (RecordSelection(texts={"project": ("NONE",)}), lambda r: r.project is None),
    (RecordSelection(texts={"granted_pe": ("mpi",)}), lambda r: r.granted_pe == "mpi"),
    (
        RecordSelection(texts={"group": ("bio*",), "owner": ("ben",)}),
        lambda r: r.group == "biology" and r.owner == "ben",
    ),
    (RecordSelection(numbers={"slots": (1, 4)}), lambda r: r.slots in {1, 4}),
    (RecordSelection(numbers={"arid": (17,)}), lambda r: r.arid == 17),
    (RecordSelection(hosts=("N1",)), lambda r: r.hostname == "n1.example"),
    (RecordSelection(hosts=("n*.EXAMPLE",)), lambda _: True),
    (RecordSelection(hosts=("n1.other",)), lambda _: False),
    (RecordSelection(queues=("all.q",)), lambda r: r.qname == "all.q"),
    (RecordSelection(queues=("*@n2*",)), lambda r: r.hostname == "n2.example"),
    (
        RecordSelection(queues=("low.q@",), jobs=(1,)),
        lambda r: r.qname == "low.q" and r.job_number == 1,
    ),
    (RecordSelection(jobs=(2, 3)), lambda r: r.job_number in {2, 3}),
    (RecordSelection(names=("sim*",)), lambda r: fnmatchcase(r.job_name, "sim*")),
    (
        RecordSelection(jobs=(1,), names=("test",)),
        lambda r: r.job_number == 1 or r.job_name == "test",
    ),
    (RecordSelection(tasks=(range(2, 9, 3),)), lambda r: r.task_number in {2, 5, 8}),
    (RecordSelection(tasks=(range(1, 2), range(4, 7))), lambda r: r.task_number in {1, 4, 5, 6}),
    (
        RecordSelection(begin=START + 100 * SECOND),
        lambda r: (r.start_time or 0) >= START + 100 * SECOND,
    ),
    (
        RecordSelection(end=START + 50_000 * SECOND),
        lambda r: (r.start_time or 0) <= START + 50_000 * SECOND,
    ),
    (
        RecordSelection(begin=START, end=START + 50_000 * SECOND, by_end=True),
        lambda r: START <= (r.end_time or 0) <= START + 50_000 * SECOND,
    ),
    (RecordSelection(masters=True), lambda r: r.pe_taskid is None),
    (RecordSelection(), lambda _: True),
]


@pytest.mark.parametrize(("selection", "rule"), CASES)
@settings(max_examples=20)
@given(found=st.lists(RECORDS, max_size=30))
def test_selection_by_columns_equals_rule(
    selection: RecordSelection, rule: Rule, found: list[Accounting]
) -> None:
    """Each filter keeps matching records, in order, and reads only its columns."""
    numbered = [
        Accounting(**{f: getattr(r, f) for f in r.__struct_fields__} | {"priority": i})
        for i, r in enumerate(found)
    ]
    table = from_records(numbered, (*selection.columns, "priority"))
    chosen = selection.apply(table)["priority"].to_pylist()
    assert chosen == [record.priority for record in numbered if rule(record)]


@pytest.mark.parametrize("start", range(0, len(POOL), 100))
def test_outcomes_equal_records(start: int) -> None:
    """Whether or not a user deleted one of them."""
    some = POOL[start : start + 100]
    for records in (some, [record for record in some if record.deleted_by is None]):
        found = job_columns(from_records(records, FIELDS))
        assert found["outcome"].to_pylist() == [str(record.outcome) for record in records]
        ends = [record.is_final and not record.is_intermediate for record in records]
        assert found["ends_job"].to_pylist() == ends
