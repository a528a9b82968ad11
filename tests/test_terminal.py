"""Output for people: colour only where it is wanted, escaped, and apart from data."""

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.terminal import (
    Progress,
    format_duration,
    format_elapsed,
    has_colour,
    in_bytes,
    listed,
    note,
    paint,
    plural,
    printable,
)


class Terminal(io.StringIO):
    """A stream that claims to be a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _colours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")


def test_counts_and_lists_are_readable() -> None:
    assert (plural(1, "line"), plural(12345, "line")) == ("1 line", "12 345 lines")
    assert listed("abcde") == "a, b, c and 2 more"


def test_colour_is_used_on_terminals_without_no_color(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not in pipes, nor on a terminal without colours."""
    assert paint("x", "red", Terminal()) == "\x1b[31mx\x1b[0m"
    assert paint("x", "", Terminal()) == "x"
    assert paint("x", "red", io.StringIO()) == "x"
    monkeypatch.setenv("TERM", "dumb")
    assert not has_colour(Terminal())
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    assert not has_colour(Terminal())


@given(st.text())
def test_escaped_text_is_printable(text: str) -> None:
    """No character that could control a terminal is left; printable text is unchanged."""
    assert printable(text).isprintable()
    assert printable(text) == text or not text.isprintable()


def test_progress_is_shown_on_terminal_after_delay(monkeypatch: pytest.MonkeyPatch) -> None:
    """Quick work shows nothing, a pipe never does; the line is erased before other output."""
    stderr = Terminal()
    monkeypatch.setattr("sys.stderr", stderr)
    monkeypatch.setattr(Progress, "is_enabled", True)
    progress = Progress()
    progress.show("1 of 9")
    progress.clear()
    assert stderr.getvalue() == ""
    progress.next = 0.0
    progress.show("2 of 9")
    progress.show("3 of 9")
    progress.clear()
    assert stderr.getvalue() == "\r\x1b[K2 of 9\r\x1b[K"
    progress.next = 0.0
    progress.show("3 of 9")
    note("trouble")
    assert stderr.getvalue().endswith("\r\x1b[K3 of 9\r\x1b[K\x1b[2mtrouble\x1b[0m\n")
    progress.next = 0.0
    progress.show("\x1b[2J" + 99 * "x")
    progress.clear()
    assert stderr.getvalue().endswith("\r\x1b[K\\x1b[2J" + 72 * "x" + "\r\x1b[K")
    monkeypatch.setattr(Progress, "is_enabled", False)  # a program that uses the library
    progress.next = 0.0
    progress.show("4 of 9")
    assert stderr.getvalue().endswith("x\r\x1b[K")
    monkeypatch.setattr(Progress, "is_enabled", True)
    monkeypatch.setattr("sys.stderr", pipe := io.StringIO())
    progress.next = 0.0
    progress.show("4 of 9")
    assert pipe.getvalue() == ""


def test_durations_and_sizes_are_readable() -> None:
    """In the largest unit of which there are at least two; sizes have three digits."""
    assert [format_duration(seconds) for seconds in (0, 45, 3000, 86400, 3 * 86400)] == [
        "0 s", "45 s", "50 min", "24 h", "3 d",
    ]  # fmt: skip
    assert [in_bytes(size) for size in (0, 512, 1536, 2**30, 2**60)] == [
        "0 B", "512 B", "1.5 KiB", "1 GiB", "1.05e+06 TiB",
    ]  # fmt: skip


def test_notes_are_escaped_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    """A subject in a message for people may contain an escape sequence."""
    note("from a.\x1b[2J: bad")
    assert capsys.readouterr() == ("", "from a.\\x1b[2J: bad\n")


def test_elapsed_times_are_written_as_by_slurm() -> None:
    """Without leading zeros, and with days from one day on."""
    shown = [format_elapsed(seconds) for seconds in (-1, 61, 17119, 86400, 90061.4)]
    assert shown == ["0:00:00", "0:01:01", "4:45:19", "1-00:00:00", "1-01:01:01"]
