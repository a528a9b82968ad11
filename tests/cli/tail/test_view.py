"""The output of ``tail``: samples and counts that own up, rows, and readers that are slow."""

import asyncio
import io
import itertools
import json
import os
import signal
import subprocess
from types import SimpleNamespace
from typing import Any

import nats
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ccpipe.bus.nats.protocol.frames import Delivery, write_header
from ccpipe.bus.nats.server import NatsServer
from ccpipe.cli.tail import view
from ccpipe.cli.tail.view import (
    MAX_EXCERPT,
    RateLimiter,
    Stdout,
    TailView,
    dead_row,
    envelopes,
    sample,
    sonar_row,
    type_and_attributes,
)
from ccpipe.formats.lineprotocol import decode, to_lines
from ccpipe.message import Message
from tests.cli.command import ccpipe, command, environment
from tests.conftest import eventually

LINES = decode(b"".join(b"m%d,cluster=c%d value=%d 1740027951\n" % (i, i % 3, i) for i in range(9)))


@given(st.integers(0, 200), st.integers(0, 200))
def test_sample_is_spread_over_payload(size: int, count: int) -> None:
    """With the requested number of rows, in order, and no gap twice as wide as another."""
    lines = decode(b"".join(b"m value=%d 1740027951\n" % i for i in range(size)))
    rows = [int(message.value) for message in sample(lines, count)]
    assert len(rows) == min(size, count)
    gaps = {later - earlier for earlier, later in itertools.pairwise(rows)}
    assert all(gap > 0 for gap in gaps)
    assert max(gaps, default=1) - min(gaps, default=1) <= 1
    if rows:
        assert rows[0] == 0
        assert size - rows[-1] <= -(-size // count)


def test_rate_limit_is_per_second(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unused capacity of one second is not available later."""
    now = 100.0
    monkeypatch.setattr(view, "time", SimpleNamespace(monotonic=lambda: now))
    limiter = RateLimiter(10)
    assert [limiter.take(7), limiter.take(7), limiter.take(7)] == [7, 3, 0]
    now += 0.5
    assert limiter.take(99) == 5
    now += 60
    assert limiter.take(99) == 10
    assert RateLimiter(0).take(10**9) == 10**9


def test_lines_left_out_by_rate_are_counted() -> None:
    stream = io.BytesIO()
    shown = TailView(stream.write, "line", rate=4)
    shown.show(LINES)
    assert (shown.shown, shown.left_out) == (4, 5)
    assert len(decode(stream.getvalue())) == 4


def test_view_stops_after_count_of_lines() -> None:
    """--count is exact, for payloads of any size."""
    stream = io.BytesIO()
    shown = TailView(stream.write, "csv", count=12)
    fullness = []
    for _ in range(2):
        shown.show(LINES)
        fullness.append(shown.is_full)
    assert fullness == [False, True]
    assert len(stream.getvalue().splitlines()) == 1 + 12


def test_message_that_format_cannot_represent_is_skipped(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It is reported and counted; the others are shown."""
    stream = io.BytesIO()
    shown = TailView(stream.write, "json")
    good = Message("m", {}, 1.0, 10**18)
    far = Message("m", {}, 1.0, 5)
    lines = to_lines([good, far, good])
    code = len(lines.table)
    lines.table.series[code] = lines.table.series[lines.series[0]]._replace(name="\ud800")
    lines.series[1] = code
    shown.show(lines)
    del lines.table.series[code]  # the table is everybody's
    assert (shown.shown, shown.refused) == (2, 1)
    assert len(stream.getvalue().splitlines()) == 2
    assert capsys.readouterr().err.count("\n") == 1


NOON = 1_740_052_800 * 10**9
SAMPLE = {
    "data": {
        "type": "sample",
        "attributes": {
            "time": "2025-02-20T06:05:51+01:00", "cluster": "fox", "node": "e1",
            "system": {"cpus": [1, 2], "load1": 3}, "jobs": [{"job": 7}], "note": "x",
        },
    },
}  # fmt: skip
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["data", "attributes", "time", "type", "errors"]), inner)
    ),
)


def dead_letter(payload: bytes, **headers: str) -> Delivery:
    named = {f"Ccpipe-{name.capitalize()}": value for name, value in headers.items()}
    return Delivery("fox.dead", payload, write_header(named), f"$JS.ACK.s.c.1.1.1.{NOON}.0")


def test_payload_has_one_envelope_or_one_per_line() -> None:
    """A single envelope may span several lines."""
    assert list(envelopes(json.dumps(SAMPLE).encode())) == [SAMPLE]
    many = b'{"a":1}\n\n{"b":2}\n'
    assert list(envelopes(many)) == [{"a": 1}, {"b": 2}]
    with pytest.raises(ValueError, match="malformed"):
        list(envelopes(b"{broken"))


def test_envelope_row_has_data_or_errors() -> None:
    """If there are only errors, the first one gives cluster and node."""
    assert type_and_attributes(SAMPLE)[0] == "sample"
    errors = {"errors": [{"cluster": "fox", "node": "e1", "detail": "no sacct"}]}
    assert type_and_attributes(errors) == ("errors", errors["errors"][0])
    assert type_and_attributes({}) == ("errors", {})


def test_envelope_row_counts_records_of_lists() -> None:
    """With the whole envelope below on request."""
    row = sonar_row(SAMPLE, NOON, whole=False)
    assert row.cells[1:] == ["e1", "sonar.sample", "", "", "fox", "system (cpus 2), jobs 1, note=x"]
    assert row.marks == ()
    assert json.loads("\n".join(sonar_row(SAMPLE, NOON, whole=True).marks)) == SAMPLE


@example({"x": "one\u2028two"})
@given(st.dictionaries(st.sampled_from(["data", "errors", "x"]), JSON))
def test_any_object_becomes_row(envelope: dict[str, Any]) -> None:
    """Whatever is published on the subject; below it stands the whole of it."""
    row = sonar_row(envelope, NOON, whole=True)
    assert len(row.cells) == 7
    assert json.loads("\n".join(row.marks)) == envelope


def test_dead_letter_is_shown_with_reason_origin_and_excerpt() -> None:
    """A long one is cut; one without headers is shown all the same."""
    row = dead_row(dead_letter(b"bad \xff", reason="no good", origin="fox.metrics", line="3"))
    assert row.cells[5:] == ["fox", "fox.metrics line 3: no good: bad \ufffd"]
    cut = dead_row(dead_letter(b"x" * 1000)).cells[6]
    assert cut == "?: no reason given: " + "x" * MAX_EXCERPT


async def test_writer_keeps_order() -> None:
    """``drain`` returns when the reader has everything."""
    reading, writing = os.pipe()
    output = Stdout(writing)
    for number in range(100):
        output.write(b"%d\n" % number)
    await output.drain(asyncio.Event())
    assert os.read(reading, 10_000) == b"".join(b"%d\n" % number for number in range(100))
    os.close(reading)
    os.close(writing)


async def test_writer_drops_lines_of_stopped_reader_and_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Beyond the limit lines are dropped and counted; closing does not wait for the reader."""
    monkeypatch.setattr(view, "MAX_BYTES", 100_000)
    reading, writing = os.pipe()
    output = Stdout(writing)
    for _ in range(3000):
        output.write(b"x" * 99 + b"\n")
    assert output.dropped > 1000
    stop = asyncio.Event()
    stop.set()
    await asyncio.wait_for(output.drain(stop), 60)
    os.close(reading)  # its thread ends by the error
    with pytest.raises(BrokenPipeError):
        await output.drain(asyncio.Event())
    with pytest.raises(BrokenPipeError):
        output.write(b"more\n")
    os.close(writing)


async def test_tail_obeys_sigterm_when_pipe_is_full(nats_server: NatsServer) -> None:
    process = subprocess.Popen(
        command("tail", "--raw", "--server", nats_server.url),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
    )
    client = await nats.connect(nats_server.url)
    payload = b"m,cluster=c,hostname=n1,type=node value=1 1740000000\n" * 1000

    def is_full() -> bool:
        assert process.stdout is not None
        reader = process.stdout.fileno()
        import fcntl
        import termios

        held = bytearray(4)
        fcntl.ioctl(reader, termios.FIONREAD, held)
        return int.from_bytes(held, "little") >= 60_000

    for _ in range(3000):
        await client.publish("c.metrics", payload)
        await client.flush()
        if is_full():
            break
        await asyncio.sleep(0.02)
    await eventually(is_full, 60)
    await client.close()
    process.send_signal(signal.SIGTERM)
    assert await asyncio.to_thread(process.wait, 60) == 0
    for stream in (process.stdout, process.stderr):
        assert stream is not None
        stream.close()


@pytest.mark.parametrize("descriptor", ["full", "closed"])
def test_tail_reports_failed_write(nats_server: NatsServer, descriptor: str) -> None:
    """A full disk, or a closed standard output: one line and exit code 74."""
    words = ("--raw", "--count", "1", "--all", "--for", "300s", "--server", nats_server.url)
    redirect = ">/dev/full" if descriptor == "full" else ">&-"
    payload = "m,hostname=n,type=node value=1 1740000000\n"
    sent = ccpipe("send", "-", "--server", nats_server.url, stdin=payload.encode())
    assert sent.code == 0, sent.err
    shell = f'exec "$@" {redirect}'
    done = subprocess.run(
        ["sh", "-c", shell, "sh", *command("tail", *words)],
        stderr=subprocess.PIPE,
        env=environment(),
        timeout=500,
        check=False,
    )
    assert done.returncode == 74, done.stderr
    last = done.stderr.decode().splitlines()[-1]
    assert last.startswith("ccpipe: standard output: ")
    assert b"Traceback" not in done.stderr
