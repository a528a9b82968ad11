"""Derived values of a record, outcomes of runs, and requests in categories."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.formats.gridengine.record import (
    APPLICATION_ERROR,
    MIGRATING,
    NO_DATA,
    RESCHEDULING,
    Accounting,
    Requests,
    is_last_record,
    meaning,
    parse_category,
    seconds,
    size,
)
from tests.formats.gridengine.accounting_samples import CLASSIC, TAIL, one


def used(**eusage: float | str) -> Accounting:
    return Accounting(job_number=1, usage={"rusage": {"ru_maxrss": 3}, "eusage": {**eusage}})


def test_record_maxrss_falls_back_to_getrusage() -> None:
    """If ``maxrss`` is missing, 0 or the sentinel, ``ru_maxrss`` in KiB is used."""
    assert used(maxrss=7.0).maxrss == 7
    assert used().maxrss == used(maxrss=0.0).maxrss == used(maxrss=NO_DATA).maxrss == 3 * 1024


def test_record_amount_is_zero_if_missing_or_text() -> None:
    """Sums over records need numbers, even from custom containers."""
    record = used(cpu="much")
    assert (record.cpu, record.maxvmem, record.amount("gpu", "watts")) == (0, 0, 0)


def test_record_derives_requests_and_outcome() -> None:
    """Requests from the category; failure and end from the codes and the start."""
    record = one(f"{CLASSIC}-l h_rt=1:0:0:{TAIL}:0:0")
    assert record.requests.h_rt == 3600
    assert (record.failure, record.is_final, record.is_intermediate) == ("no failure", True, False)


def test_record_is_intermediate_with_exit_status_minus_one() -> None:
    """The reporting file has such records at midnight for running jobs."""
    assert Accounting(job_number=1, exit_status=-1).is_intermediate


@pytest.mark.parametrize(
    ("failed", "exit_status", "started", "deleted_by", "expected"),
    [
        (0, 0, True, "", "completed"),
        (0, 0, False, "", "start_failed"),
        (0, 3, True, "", "failed"),
        (0, 139, True, "", "killed"),
        (0, 255, True, "", "failed"),
        (100, 137, True, "", "killed"),
        (100, 137, True, "anna@login1", "cancelled"),
        (0, 0, True, "anna@login1", "cancelled"),
        (37, 137, True, "", "timeout"),
        (100, 137, True, "execd@node01", "timeout"),
        (25, 99, True, "", "requeued"),
        (24, 137, True, "", "requeued"),
        (25, 0, False, "qmaster@m", "node_fail"),
        (19, 0, True, "", "node_fail"),
        (8, 0, False, "", "start_failed"),
        (26, 0, True, "", "start_failed"),
        (15, 0, True, "", "failed"),
        (30, 100, True, "", "failed"),
    ],
)
def test_classify_applies_rules_in_order(
    failed: int, exit_status: int, started: bool, deleted_by: str, expected: str
) -> None:
    """To codes, signals and who deleted the job."""
    record = msgspec.structs.replace(
        one(f"{CLASSIC}-l h_rt=12:{TAIL}:0:0"),
        failed=failed,
        exit_status=exit_status,
        start_time=1 if started else None,
        deleted_by=deleted_by or None,
    )
    assert str(record.outcome) == expected


def test_failure_codes_have_texts_of_manual() -> None:
    """Unknown codes have a text, too."""
    assert (meaning(8), meaning(100)) == ("in prolog", "assumedly after job")
    assert meaning(55) == "invalid execution state"


@pytest.mark.parametrize("failed", [MIGRATING, RESCHEDULING, APPLICATION_ERROR])
def test_record_of_rerun_is_not_final(failed: int) -> None:
    """A migrated, rescheduled or erroneous job continues, whether or not it started."""
    assert not is_last_record(failed, started=True)
    assert not is_last_record(failed, started=False)


def test_record_of_failure_before_start_is_not_final() -> None:
    """Such a job is queued again; any other ending is its last."""
    assert not is_last_record(8, started=False)
    assert is_last_record(8, started=True)
    assert is_last_record(0, started=False)


def test_category_parser_reads_hard_requests() -> None:
    """Of both generations; soft requests (``-soft``) do not count."""
    old = parse_category("-q all.q@node01*,low.q -l h_rt=3600,h_vmem=1.5G,excl -pe smp 2,3 -ar 7")
    assert (old.h_rt, old.h_vmem, old.resources["excl"]) == (3600, 3 * 2**29, "TRUE")
    new = parse_category(
        "-scope global -hard -l h_rt=0:1:30 -soft -l fast=1 -q b.q -scope slave -hard -l gpu=2 -P x"
    )
    assert (new.h_rt, new.gpu, new.resources) == (90, 2, {"h_rt": "0:1:30"})
    assert parse_category("what is this -I y") == Requests()


@pytest.mark.parametrize(
    ("text", "amount"),
    [("2G", 2**31), ("2g", 2 * 10**9), ("100", 100), ("1.5K", 1536), ("x", None)],
)
def test_size_reads_units(text: str, amount: int | None) -> None:
    """Upper case means powers of 1024, lower case powers of 1000."""
    assert size(text) == amount


@pytest.mark.parametrize(
    ("text", "amount"),
    [("60", 60), ("1:2:3", 3723), (":5:0", 300), ("1:30", 90), ("INFINITY", None)],
)
def test_seconds_reads_both_formats(text: str, amount: float | None) -> None:
    """Seconds, or hours, minutes and seconds."""
    assert seconds(text) == amount


@given(st.text(max_size=80))
def test_category_parser_never_fails(text: str) -> None:
    """Its units are numbers or None."""
    requests = parse_category(text)
    assert requests.h_rt is None or requests.h_rt >= 0
    assert requests.gpu is None or requests.gpu >= 0
