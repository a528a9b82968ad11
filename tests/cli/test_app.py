"""Errors in a command line are reported as typed, and the log is printable."""

import logging
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.cli.console.log import PrintableFormatter
from tests.cli.command import ccpipe


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            "tail --kind foo",
            "--kind: invalid value 'foo' (one of metric, event, log, control",
        ),
        ("tail --bogus", "Unknown option: --bogus"),
        ("tail -v -q", "--verbose and --quiet exclude each other"),
        ("tail --server http://a", "--server: not the URL of a NATS server: 'http://a'"),
        ("help xyzzy", "no command 'xyzzy'; see ccpipe --help"),
        ("version one two", "unexpected argument: one, two; see ccpipe version --help"),
        ("tail --count x", "--count: not a whole number: 'x'"),
        ("tail --count", "--count needs a value; see ccpipe tail --help"),
        ("convert", "--to is missing; see ccpipe convert --help"),
        ("convert --to", "--to needs a value; see ccpipe convert --help"),
        ("nodelist n[1-", "no command 'n[1-'; known are expand, compress, count"),
        ("completion tcsh", "SHELL: invalid value 'tcsh' (one of bash, zsh, fish)"),
        ("convert --to json --to csv", "--to is given more than once; see ccpipe convert --help"),
        ("convert --to x", "--to: invalid value 'x' (one of line, json, csv, sonar, events"),
        ("bridge", "RECIPE is missing; see ccpipe bridge --help"),
        ("tial", "no command 'tial'; did you mean 'tail'?"),
        ("xyzzy", "no command 'xyzzy'; see ccpipe --help"),
        ("control xyzzy", "no command 'xyzzy'; known are get, set"),
        ("up --port 99999", "--port 99999: not a port (1 to 65535)"),
        ("up --dashboard-port 0", "--dashboard-port 0: not a port (1 to 65535)"),
        (
            "up --interval soon",
            "--interval: not an interval: 'soon' (expected e.g. 500ms, 10s, 5m)",
        ),
        ("publish --interval 0", "--interval: not an interval: 0.0"),
        ("tail --since soon", "--since: not a time: 'soon' (expected e.g. 14:30, 2025-02-20, "),
        ("up --dir= --for 1s", "empty path; use . for the current directory"),
        ("publish --once --config=", "empty path; use . for the current directory"),
        ("up --sync soon", "--sync: not a duration: 'soon' (expected e.g. 500ms, 10s, 5m)"),
    ],
)
def test_usage_error_is_reported_as_typed(line: str, expected: str) -> None:
    """Exit code 64, one line, no names of Python types."""
    shown = ccpipe(*line.split())
    assert (shown.code, shown.out) == (64, "")
    assert expected in shown.err
    assert len(shown.err.splitlines()) == 1
    assert "Literal" not in shown.err
    assert "Tokens" not in shown.err


def test_empty_argument_is_accepted_unless_path() -> None:
    """Such as the selected NATS context."""
    assert "empty path" not in ccpipe("tail", "--context", "", "--for", "1s").err
    assert ccpipe("nodelist", "expand", "").code != 70


@pytest.mark.parametrize(
    ("flags", "shown"),
    [((), {"INFO"}), (("-v",), {"INFO", "DEBUG"}), (("--quiet",), set()), (("-q",), set())],
)
def test_log_level_is_set_by_flags(flags: tuple[str, ...], shown: set[str], tmp_path: Path) -> None:
    """They override CCPIPE_LOGLEVEL."""
    path = tmp_path / "a.lp"
    path.write_text("load,hostname=n1 value=1 1\n")
    words = ("backfill", path, "--from", "file", "--to", "null")
    done = ccpipe(*words, *flags, XDG_STATE_HOME=str(tmp_path))
    assert done.code == 0, done.err
    assert {level for level in ("INFO", "DEBUG") if f" {level} " in done.err} == shown
    if flags:
        level = "error" if shown else "debug"
        again = ccpipe(*words, *flags, XDG_STATE_HOME=str(tmp_path), CCPIPE_LOGLEVEL=level)
        assert {level for level in ("INFO", "DEBUG") if f" {level} " in again.err} == shown


@given(st.text())
def test_log_escapes_control_characters(text: str) -> None:
    """Of subjects and errors, line by line."""
    record = logging.LogRecord("x", logging.INFO, "f", 1, "got %s", (text,), None)
    shown = PrintableFormatter("%(message)s").format(record)
    assert all(line.isprintable() for line in shown.split("\n"))
