"""States of jobs and nodes, in one spelling."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.errors import DataError
from ccpipe.formats.slurm.values import JOB_CODES, cancelled_by, job_state, node_states


@pytest.mark.parametrize(
    ("text", "state", "by"),
    [
        ("COMPLETED", "COMPLETED", None),
        ("CANCELLED by 1000", "CANCELLED", 1000),
        ("CANCELLED by 0", "CANCELLED", 0),
        ("CANCELLED", "CANCELLED", None),
        ("NODE_FAIL", "NODE_FAIL", None),
        ("OUT_OF_MEMORY", "OUT_OF_MEMORY", None),
        ("CG", "COMPLETING", None),
        ("PD", "PENDING", None),
        ("R", "RUNNING", None),
        ("", None, None),
    ],
)
def test_states_of_jobs(text: str, state: str | None, by: int | None) -> None:
    assert job_state(text) == state
    assert cancelled_by(text) == by


def test_every_code_stands_for_a_word() -> None:
    assert not set(JOB_CODES) & set(JOB_CODES.values())
    assert all(job_state(word) == word for word in JOB_CODES.values())


@pytest.mark.parametrize("text", ["completed", "CANCELLED by", "CANCELLED by x", "A B", "1", "_"])
def test_what_is_no_state_of_a_job(text: str) -> None:
    with pytest.raises(DataError, match="not a job's state"):
        job_state(text)


@pytest.mark.parametrize(
    ("text", "states"),
    [
        ("idle", ("IDLE",)),
        ("down+drain+not_responding", ("DOWN", "DRAIN", "NOT_RESPONDING")),
        ("DOWN+NOT_RESPONDING", ("DOWN", "NOT_RESPONDING")),
        ("mixed+planned", ("MIXED", "PLANNED")),
        ("down*", ("DOWN", "NOT_RESPONDING")),
        ("drained*", ("DRAINED", "NOT_RESPONDING")),
        ("drain*", ("DRAINED", "NOT_RESPONDING")),
        ("drain", ("DRAINED",)),
        ("drng", ("DRAINING",)),
        ("alloc+", ("ALLOCATED", "COMPLETING")),
        ("alloc", ("ALLOCATED",)),
        ("mix-", ("MIXED", "PLANNED")),
        ("idle~", ("IDLE", "POWERED_DOWN")),
        ("idle#", ("IDLE", "POWERING_UP")),
        ("idle!", ("IDLE", "POWER_DOWN")),
        ("idle%", ("IDLE", "POWERING_DOWN")),
        ("maint$", ("MAINTENANCE", "MAINTENANCE")),
        ("idle@", ("IDLE", "REBOOT_REQUESTED")),
        ("boot^", ("BOOT", "REBOOT_ISSUED")),
        ("unk*", ("UNKNOWN", "NOT_RESPONDING")),
        ("unknown+not_responding", ("UNKNOWN", "NOT_RESPONDING")),
        ("n/a", ()),
        ("", ()),
    ],
)
def test_states_of_nodes(text: str, states: tuple[str, ...]) -> None:
    assert node_states(text) == states


@pytest.mark.parametrize("text", ["down++drain", "idle**", "4", "a b", "+", "*"])
def test_what_is_no_state_of_a_node(text: str) -> None:
    with pytest.raises(DataError, match="not a node's state"):
        node_states(text)


@given(st.text(max_size=30))
def test_any_text_is_a_state_or_a_named_error(text: str) -> None:
    for reader in (job_state, cancelled_by, node_states):
        with suppress(DataError):
            reader(text)
