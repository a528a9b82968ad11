"""Speed of reading accounting: lines per CPU-second, compared with a plain Python loop in one run.

    python -m benchmarks.gridengine.accounting [lines]

The lines are from the real sample file and in OCS's format, repeated.

The aims are 1 million classic lines per CPU-second to columns, and twice ``json.loads``. Without
the compiled kernel, columns are made of records; both are measured.
"""

import csv
import functools
import io
import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from ccpipe.accounting.files import BLOCK
from ccpipe.formats.files import read_full
from ccpipe.formats.gridengine import blocks, read_stream
from ccpipe.formats.gridengine.columns import COLUMNS, read_columns, read_in_python
from ccpipe.formats.gridengine.reader import FIELDS
from ccpipe.formats.gridengine.record import Variant

DATA = Path(__file__).parents[2] / "tests" / "data" / "gridengine"
NAMES = FIELDS[Variant.CLASSIC_45]
QACCT = ("owner", "ru_wallclock", "ru_utime", "ru_stime", "cpu", "mem", "io", "iow")
"""The columns that ``qacct -o`` needs."""


def samples(count: int) -> dict[str, bytes]:
    """Make so many lines of each format."""
    classic = (DATA / "accounting").read_bytes().splitlines(keepends=True)[4:]
    jsonl = (DATA / "derived.jsonl").read_bytes().splitlines(keepends=True)[3:18]
    return {
        name: b"".join((lines * (count // len(lines) + 1))[:count])
        for name, lines in (("classic", classic), ("jsonl", jsonl))
    }


def naive(payload: bytes) -> None:
    """Split and make a dict, as scripts do."""
    for line in payload.split(b"\n"):
        dict(zip(NAMES, line.decode().split(":"), strict=False))


def csv_reader(payload: bytes) -> None:
    """Read with the csv module into dicts."""
    for _ in csv.DictReader(io.StringIO(payload.decode()), NAMES, delimiter=":"):
        pass


def json_loads(payload: bytes) -> None:
    """Read with the standard library into dicts."""
    for line in payload.splitlines():
        json.loads(line)


def records(payload: bytes) -> None:
    """Read into ``Accounting`` records."""
    for _ in read_stream(io.BytesIO(payload)):
        pass


def columns(payload: bytes) -> None:
    """Read into all columns."""
    _read_blocks(payload, COLUMNS)


def python_columns(payload: bytes) -> None:
    """Read into all columns without the kernel."""
    read_in_python(payload, COLUMNS, 1, 0)


def some_columns(payload: bytes) -> None:
    """Read into the eight columns that ``qacct -o`` needs."""
    _read_blocks(payload, QACCT)


def _read_blocks(payload: bytes, names: Sequence[str]) -> None:
    for block in blocks(functools.partial(read_full, io.BytesIO(payload)), BLOCK):
        read_columns(block, names)


def rate(work: Callable[[bytes], None], payload: bytes, rounds: int = 3) -> float:
    """Return lines per CPU-second, the best of a few rounds."""
    best = float("inf")
    for _ in range(rounds):
        before = time.process_time()
        work(payload)
        best = min(best, time.process_time() - before)
    return payload.count(b"\n") / best


def main() -> None:
    """Print a table."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    plans = {
        "classic": (naive, csv_reader, records, python_columns, columns, some_columns),
        "jsonl": (json_loads, records, python_columns, columns, some_columns),
    }
    for name, payload in samples(count).items():
        base = 0.0
        for work in plans[name]:
            found = rate(work, payload)
            base = base or found
            print(f"{name:8} {work.__name__:14} {found:12,.0f} lines/CPU-s {found / base:6.2f}x")


if __name__ == "__main__":
    main()
