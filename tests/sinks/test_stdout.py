"""``StdoutSink``: records are on standard output when ``write()`` returns."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from ccpipe.errors import UnavailableError
from ccpipe.formats.lineprotocol import decode, to_lines
from ccpipe.sinks.stdout import StdoutSink
from tests.cli.command import ccpipe, on_terminal
from tests.sinks.conftest import NOON, Given, carry, metric


async def test_stdout_writes_lines_with_exact_times(
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    """By default records are line protocol."""
    await StdoutSink().write(to_lines([metric(1.5), metric(2, time=NOON + 1)]))
    assert capfdbinary.readouterr().out == (
        b"cpu_load,cluster=fox,hostname=n1,type=node value=1.5 1740052800\n"
        b"cpu_load,cluster=fox,hostname=n1,type=node value=2i 1740052800000000001\n"
    )


async def test_precision_is_unit_of_timestamps(
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    await StdoutSink(precision="ms").write(decode(b"a,hostname=n1 value=1 1740052800\n"))
    assert capfdbinary.readouterr().out == b"a,hostname=n1 value=1.0 1740052800000\n"


async def test_json_is_one_object_per_line(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    await StdoutSink(format="json").write(to_lines([metric(1.5, time=NOON + 1)]))
    assert capfdbinary.readouterr().out == (
        b'{"name":"cpu_load","tags":{"cluster":"fox","hostname":"n1","type":"node"},'
        b'"field":"value","value":1.5,"time":"2025-02-20T12:00:00.000000001Z"}\n'
    )


async def test_record_json_cannot_represent_is_rejected(
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    """The batch is split; other records are written."""
    records = [metric(float(n)) for n in range(5)]
    records[3] = metric(float("nan"))
    letters = await carry(Given(records), StdoutSink(format="json"))
    assert [letter.origin for letter in letters] == ["test"]
    assert "nan is not a valid value" in letters[0].reason
    assert capfdbinary.readouterr().out.count(b"\n") == 4


@contextmanager
def standard_output(monkeypatch: pytest.MonkeyPatch, descriptor: int) -> Iterator[None]:
    with os.fdopen(descriptor, "wb", buffering=0) as file:
        monkeypatch.setattr(sys, "stdout", SimpleNamespace(fileno=file.fileno))
        yield
        monkeypatch.undo()


def test_terminal_output_is_escaped(tmp_path: Path) -> None:
    """A pipe receives records unchanged."""
    line = 'e,hostname=a,type=node event="\x1b[31m" 1740027951\n'
    (tmp_path / "in.lp").write_text(line)
    (tmp_path / "r.toml").write_text(
        f'[source]\nuse = "file"\npaths = ["{tmp_path}/in.lp"]\n[sink]\nuse = "stdout"\n'
    )
    assert on_terminal("bridge", tmp_path / "r.toml").out == line.replace("\x1b", r"\x1b")
    assert ccpipe("bridge", tmp_path / "r.toml").out == line


async def test_broken_pipe_is_raised_unchanged(monkeypatch: pytest.MonkeyPatch) -> None:
    """For the command to end quietly."""
    reading, writing = os.pipe()
    os.close(reading)
    with standard_output(monkeypatch, writing), pytest.raises(BrokenPipeError):
        await StdoutSink().write(to_lines([metric(1.5)]))


async def test_full_disk_is_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    """The write may be retried."""
    full = os.open("/dev/full", os.O_WRONLY)
    with (
        standard_output(monkeypatch, full),
        pytest.raises(UnavailableError, match="standard output: No space left"),
    ):
        await StdoutSink().write(to_lines([metric(1.5)]))
