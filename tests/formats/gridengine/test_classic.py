"""The colon-separated format: fields of every variant, and why a line is rejected."""

import re

import pytest

from ccpipe.formats.gridengine.record import Outcome, Variant
from tests.formats.gridengine.accounting_samples import CLASSIC, TAIL, one, reason

UNIVA = "NONE:anna@login1,root@m:2048.5:1024:login1:/home\udcadx:qsub a\udcffb"


def test_units_are_ours() -> None:
    """Seconds become nanoseconds, 0 and NONE become None, KiB stay KiB in the whole usage."""
    record = one(f"{CLASSIC}NONE:{TAIL}:0:0")
    assert record.start_time == 1795170751 * 10**9
    assert (record.ar_submission_time, record.category, record.arid) == (None, "", 0)
    assert record.usage["rusage"]["ru_maxrss"] == 4696.0
    assert (record.maxrss, record.maxvmem) == (4696 * 1024, 5394432)
    assert (record.pe_taskid, record.granted_pe, record.slots) == ("1.node02", "smp", 4)


@pytest.mark.parametrize("colons", range(12))
def test_colons_in_the_category_rejoin_whatever_the_number_of_fields(colons: int) -> None:
    """The typed last fields tell 45 from 43 fields, even where colons make one count the other."""
    category = "-l lic_tag=a" + ":b" * colons
    new, old = one(f"{CLASSIC}{category}:{TAIL}:3:1795170700"), one(f"{CLASSIC}{category}:{TAIL}")
    assert (new.category, new.arid, new.origin.variant) == (category, 3, Variant.CLASSIC_45)
    assert (old.category, old.arid, old.origin.variant) == (category, 0, Variant.CLASSIC_43)


def test_empty_fields_never_shift() -> None:
    """An empty project, account and PE task leave every other field where it was."""
    line = f"{CLASSIC}NONE:{TAIL}:0:0".replace("astro", "").replace(":sge:", "::")
    record = one(line.replace("1.node02", ""))
    assert (record.project, record.account, record.pe_taskid) == ("", "", None)
    assert (record.department, record.cpu) == ("physdept", 1.75)


@pytest.mark.parametrize(
    ("tail", "variant"),
    [("", Variant.UNIVA_52), (":10.5:17", Variant.UNIVA_54), (":10.5:17:0,1", Variant.UNIVA_55)],
)
def test_univa_counts_in_milliseconds_and_hides_colons(tail: str, variant: Variant) -> None:
    """Times and wall clock are milliseconds; one high byte stands for a colon in paths."""
    line = f"{CLASSIC}-l a=b:c:{TAIL}:0:0:{UNIVA}{tail}".replace(":10:1.5", ":10250:1.5")
    line = re.sub("17951707([0-9]{2})", r"17951707\g<1>125", line)
    record = one(line.encode("utf-8", "surrogateescape"))
    assert record.origin.variant is variant
    assert (record.start_time, record.wallclock) == (1795170751125 * 10**6, 10.25)
    assert (record.category, record.submit_cmd_line) == ("-l a=b:c", "qsub a:b")
    assert (record.extra["cwd"], record.deleted_by) == ("/home:x", "anna@login1,root@m")
    assert record.outcome is Outcome.CANCELLED
    assert record.amount("eusage", "ioops") == (17 if tail else 0)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("a:b", "2 fields where a record has 43 at least"),
        (f"{CLASSIC}NONE:{TAIL}:0:".replace(":77:", ":7x7:"), "field 6, job_number, is '7x7'"),
        (f"{CLASSIC}NONE:{TAIL}:0:0".replace(":77:", ":7.5:"), "job_number is '7.5': not a whole"),
        (f"{CLASSIC}NONE:{TAIL}:0:x", "45 fields whose types fit no known variant"),
        (f"{CLASSIC}NONE:{TAIL}:0:99999999999999999999", "ar_submission_time is"),
        (f"{CLASSIC}NONE:{TAIL}:0:99999999999", "is not a time between the years 1970 and 2262"),
        (f"{CLASSIC}NONE:0.1{CLASSIC}NONE:{TAIL}:0:0", "two records in one line"),
        (f"{CLASSIC}NONE:1e999:NONE:0:0:0", "iow is '1e999': beyond the range of a double"),
    ],
)
def test_a_line_that_is_no_record_is_rejected_with_its_reason(line: str, why: str) -> None:
    """A line that fits no variant is rejected, and the reason names the wrong field."""
    assert why in reason(line)
