"""Decoding and encoding, compared with other Python libraries."""

import functools
import subprocess
from collections.abc import Callable, Sequence
from io import BytesIO
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from line_protocol_parser import parse_line
from pyarrow import csv

from benchmarks.codec import otlp
from benchmarks.payloads import first_bytes, payload, realistic
from benchmarks.timing import Result, rate, rates
from ccpipe.formats.lineprotocol import SeriesTable, decode, encode, to_lines
from ccpipe.formats.lineprotocol.decoder import decode_compiled, decode_in_python
from ccpipe.formats.lineprotocol.kernel import KERNEL
from ccpipe.message import Message

SIZES = (1, 10, 100, 1000)


TURNS, SMALL = 2, 100
"""How often all are measured, programs of others too, and twice as often up to so many lines."""


def decoders() -> dict[str, Callable[[bytes], object]]:
    """Return the decoders to measure, each a function of a payload."""
    table = SeriesTable()
    return {
        "line_protocol_parser": parse_each,
        "pyarrow.csv": arrow_csv,
        "ccpipe, in Python": lambda text: decode_in_python(text, table, "auto", lenient=False),
        "ccpipe, decode()": decode,
    }


def parse_each(text: bytes) -> None:
    """Read with ``line_protocol_parser``, which takes text, one line at a time.

    The results are dropped at once, so that its time includes no garbage collection.
    """
    for line in text.decode().splitlines():
        parse_line(line)


def arrow_csv(text: bytes) -> pa.Table:
    """Read as a table of three columns: fast, but nothing is checked or unescaped."""
    table = csv.read_csv(
        BytesIO(text),
        read_options=csv.ReadOptions(column_names=["series", "field", "time"], use_threads=False),
        parse_options=csv.ParseOptions(delimiter=" ", quote_char=False),
        convert_options=csv.ConvertOptions(
            column_types={
                "series": pa.dictionary(pa.int32(), pa.string()),
                "field": pa.string(),
                "time": pa.int64(),
            }
        ),
    )
    values = pc.utf8_slice_codeunits(table["field"], len("value=")).cast(pa.float64())
    return table.set_column(1, "value", values)


def peer(program: Path, text: bytes) -> tuple[str, float]:
    """Measure a program of ``peers``: it gets the payload, and prints its name and its rate."""
    done = subprocess.run(  # noqa: S603 - named on the command line
        [program], input=text, capture_output=True, check=True, timeout=120
    )
    name, found = done.stdout.decode().split("\t")
    return name, float(found)


def decoding(peers: Sequence[Path] = ()) -> dict[str, list[Result]]:
    """Measure all decoders, and the programs of `peers`, on payloads of several sizes."""
    lines = realistic(50_000)
    bodies = {f"{size} lines": lines[:size] for size in SIZES}
    bodies["1 MiB"] = first_bytes(lines, 2**20)
    bodies["50 000 lines"] = lines
    bodies["50 000 lines, shuffled"] = realistic(50_000, shuffle=True)
    results: dict[str, list[Result]] = {}
    for name, body in bodies.items():
        text = payload(body)
        work = {what: functools.partial(read, text) for what, read in decoders().items()}
        found: dict[str, float] = {}
        for _ in range(TURNS if len(body) > SMALL else 2 * TURNS):
            measured = rates(work, len(body)) | dict(peer(program, text) for program in peers)
            found = {what: max(speed, found.get(what, 0)) for what, speed in measured.items()}
        results[name] = [Result(what, speed) for what, speed in found.items()]
    text = payload(lines)
    if KERNEL is not None:
        results["50 000 lines, shuffled"].append(
            Result(
                "ccpipe, all series new",
                rate(
                    lambda: decode_compiled(text, SeriesTable(), "auto", lenient=False), len(lines)
                ),
                "a fresh table for each payload, in order",
            )
        )
    return results


def encoding() -> list[Result]:
    """Measure all encoders and conversions."""
    lines = realistic(50_000)
    columns = decode(payload(lines))
    messages = list(columns)
    measured: dict[str, Callable[[], object]] = {
        "f-string loop that escapes nothing": lambda: fstrings(messages),
        "ccpipe, from messages": lambda: encode(messages),
        "ccpipe, from columns": lambda: encode(columns),
        "columns → messages": lambda: list(columns),
        "messages → columns": lambda: to_lines(messages),
        "columns → Arrow table": columns.to_arrow,
    }
    try:
        from ccpipe.formats.prometheus import RemoteWrite

        remote = RemoteWrite()
        measured["columns → Prometheus remote write"] = lambda: remote.write_request(columns)
        measured["columns → the same, snappy"] = lambda: remote.encode(columns)
    except Exception as error:  # noqa: BLE001 - an extra that is not installed here
        print(f"skipping Prometheus remote write: {error}")
    measured |= otlp.contenders(columns)
    return [Result(what, speed) for what, speed in rates(measured, len(lines)).items()]


def fstrings(messages: list[Message]) -> bytes:
    """Write lines with the least possible code: no escapes, no checks, tags in their order."""
    return "\n".join(
        [
            f"{m.name},{','.join([f'{k}={v}' for k, v in m.tags.items()])}"
            f" {m.field}={m.value} {m.time // 10**9}"  # type: ignore[operator]
            for m in messages
        ]
    ).encode()
