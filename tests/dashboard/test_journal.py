"""The latest events and log messages."""

from ccpipe.dashboard.journal import MAX_TEXT, Journal
from ccpipe.message import log, metric


def test_a_page_gets_what_it_has_not() -> None:
    """By the number of the last entry that it has."""
    journal = Journal()
    for number in range(5):
        journal.feed(log("ccpipe", "info", f"text {number}", time=10**9, tags={}), 0.0)
    assert [entry.text for entry in journal.after(3)] == ["text 3", "text 4"]
    assert [entry.text for entry in journal.after(0, 1)] == ["text 4"]
    assert journal.after(5) == []


def test_it_is_bounded() -> None:
    """The oldest entries go, and long texts are cut."""
    journal = Journal(maximum=3)
    for number in range(9):
        journal.feed(log("c", "warn", f"{number}" * 9000, time=1, tags={"hostname": "n"}), 0.0)
    assert [entry.number for entry in journal.after(0)] == [7, 8, 9]
    assert {len(entry.text) for entry in journal.entries} == {MAX_TEXT}


def test_metrics_are_no_entries() -> None:
    """Only events and log messages are kept."""
    journal = Journal()
    journal.feed(metric("load", 1.0, time=1, tags={}), 0.0)
    assert journal.count == 0
