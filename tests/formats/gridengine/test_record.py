"""What a record computes from its fields."""

from ccpipe.formats.gridengine.record import NO_DATA, Accounting
from tests.formats.gridengine.accounting_samples import CLASSIC, TAIL, one


def used(**eusage: float | str) -> Accounting:
    """Make a record with this usage and 3 KiB of ``ru_maxrss``."""
    return Accounting(job_number=1, usage={"rusage": {"ru_maxrss": 3}, "eusage": {**eusage}})


def test_peak_memory_is_the_measured_one_else_that_of_getrusage() -> None:
    """Where ``maxrss`` is missing, 0 or the mark for unknown, ``ru_maxrss`` in KiB counts."""
    assert used(maxrss=7.0).maxrss == 7
    assert used().maxrss == used(maxrss=0.0).maxrss == used(maxrss=NO_DATA).maxrss == 3 * 1024


def test_usage_that_is_missing_or_a_text_counts_as_zero() -> None:
    """A sum over records needs numbers, whatever a custom container holds."""
    record = used(cpu="much")
    assert (record.cpu, record.maxvmem, record.amount("gpu", "watts")) == (0, 0, 0)


def test_a_record_answers_from_its_category_and_its_codes() -> None:
    """Requests come from the category; failure and end from the codes and the start."""
    record = one(f"{CLASSIC}-l h_rt=1:0:0:{TAIL}:0:0")
    assert record.requests.h_rt == 3600
    assert (record.failure, record.is_final, record.is_intermediate) == ("no failure", True, False)


def test_an_intermediate_record_has_exit_status_minus_one() -> None:
    """The reporting file has such records at midnight of jobs that still run."""
    assert Accounting(job_number=1, exit_status=-1).is_intermediate
