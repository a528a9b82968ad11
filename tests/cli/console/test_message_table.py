"""Tables of messages: cells, widths, and escaping."""

import io
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.cli.console.message_table import SCALED, MessageTable, short
from ccpipe.cli.console.output import table
from ccpipe.message import Message, event, metric
from tests.test_terminal import Terminal

NODE = {"cluster": "fritz", "hostname": "e1", "type": "node"}
COLOUR = re.compile(r"\x1b\[\d+m")


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Give a terminal of 60 columns and 10 lines."""
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setenv("LINES", "10")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    return Terminal()


def test_message_takes_one_line() -> None:
    """With time, cluster, node, name, location within the node, value and the other tags."""
    message = Message(
        "cpu_user",
        {**NODE, "type": "hwthread", "type-id": "3", "unit": "%"},
        1.5,
        1740027951 * 10**9 + 5 * 10**8,
    )
    head, row = MessageTable(io.StringIO()).render([message]).splitlines()
    assert head.split() == ["TIME", "NODE", "NAME", "VALUE", "WHERE", "CLUSTER"]
    clock, *rest = row.split()
    assert clock.endswith(":51.5")
    assert rest == ["e1", "cpu_user", "1.5", "%", "hwthread", "3", "fritz"]


def test_messages_of_other_kinds_show_their_field() -> None:
    """So that an event does not look like a metric with a strange value."""
    message = event("job", "start_job", "{}", time=10**18, tags=NODE)
    row = MessageTable(io.StringIO()).render([message]).splitlines()[1]
    assert "event={}" in row
    assert "function=start_job" in row


def test_value_is_not_cut_on_narrow_terminal(terminal: Terminal) -> None:
    """Long names are shortened and the columns after the value are cut."""
    message = metric(
        "a_long_name_of_a_metric", 123456789.0, time=10**18,
        tags={**NODE, "hostname": "a-long-name-of-a-node.example.org", "unit": "bytes/s"},
    )  # fmt: skip
    row = COLOUR.sub("", MessageTable(terminal).render([message])).splitlines()[1]
    assert "123.5 MB/s" in row


@pytest.mark.parametrize(("level", "code"), [("err", 31), ("warn", 33), ("debug", 2)])
def test_log_levels_have_colours(terminal: Terminal, level: str, code: int) -> None:
    """An error is red; the text follows the name and tags."""
    message = Message("kernel", {**NODE, "loglevel": level}, "text", 10**18, "log")
    row = MessageTable(terminal).render([message]).splitlines()[1]
    assert f"\x1b[{code}mlog=text" in row


def test_strict_shows_broken_rules() -> None:
    """Below the message, only if there are any."""
    clean, bad = metric("m", 1.0, time=10**18, tags=NODE), Message("m", {}, "text")
    rows = MessageTable(io.StringIO()).render([clean, bad], strict=True).splitlines()
    assert [row.strip() for row in rows[3:]] == [f"^ {problem}" for problem in bad.problems()]


def test_lines_are_cut_at_terminal_width(terminal: Terminal) -> None:
    """A long value is cut with an ellipsis; colours do not count."""
    messages = [metric("m" * 30, 1.0, time=10**18, tags=NODE), Message("m", {}, "x" * 300, 10**18)]
    for row in COLOUR.sub("", MessageTable(terminal).render(messages)).splitlines():
        assert len(row) <= 60
    assert "…" in MessageTable(terminal).render(messages)


def test_head_is_repeated_on_each_screen_of_terminal(terminal: Terminal) -> None:
    """Once in a file."""
    messages = [metric("m", 1.0, time=10**18, tags=NODE)] * 27
    assert MessageTable(terminal).render(messages).count("TIME") == 3
    assert MessageTable(io.StringIO()).render(messages).count("TIME") == 1


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1))
def test_control_characters_of_message_are_escaped(text: str) -> None:
    """Escape sequences and line ends in names, tags and values are shown, not executed."""
    message = Message(text, {"hostname": text, text: text, "type": text}, text, 10**18, text)
    shown = MessageTable(io.StringIO()).render([message], strict=True)
    rows = shown.split("\n")
    assert len(rows) == 3 + len(message.problems())
    assert all(row.isprintable() for row in rows)


@pytest.mark.parametrize(
    ("value", "unit", "expected"),
    [
        (12, "", "12"),
        (-7, "packets", "-7 packets"),
        (1234567, "", "1.235 M"),
        (1.5, "", "1.5"),
        (0.123456, "percent", "0.1235 %"),
        (134217728, "bytes", "134.2 MB"),
        (65536, "kB", "65.54 MB"),
        (3450.0, "MHz", "3.45 GHz"),
        (999.96, "W", "1 kW"),
        (0, "bytes/s", "0 B/s"),
        (float("nan"), "", "nan"),
        (float("-inf"), "W", "-inf EW"),
    ],
)
def test_numbers_are_short_and_have_unit(value: float, unit: str, expected: str) -> None:
    """At most four digits, a prefix where the unit takes one."""
    assert short(value, unit) == expected


@given(st.floats() | st.integers(-(2**64), 2**64), st.sampled_from(["", "percent", *SCALED]))
def test_any_number_fits_column(value: float, unit: str) -> None:
    """Whatever a peer sends."""
    assert len(short(value, unit)) <= 20


def test_last_column_is_wrapped() -> None:
    """No cell is lost and no line exceeds the width."""
    text = "a rather long reason with many words that does not fit into one line"
    lines = table([("x", text), ("yy", "short")], ("name", "reason"), width=40)
    assert max(map(len, lines)) <= 40
    assert " ".join(" ".join(lines[1:-1]).split()) == f"x {text}"
    assert lines[-1].split() == ["yy", "short"]
