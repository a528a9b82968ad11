"""Captured output of Slurm, and values of its raw text without the reader under test."""

import gzip
from pathlib import Path
from zoneinfo import ZoneInfo

DATA = Path(__file__).parent.parent.parent / "data" / "slurm"
UTC = ZoneInfo("UTC")
OSLO = ZoneInfo("Europe/Oslo")


def captured(name: str) -> bytes:
    path = DATA / name
    return path.read_bytes() if path.exists() else gzip.decompress(_compressed(path).read_bytes())


def names(pattern: str) -> list[str]:
    found = {*DATA.glob(pattern), *(p.with_suffix("") for p in DATA.glob(f"{pattern}.gz"))}
    assert found, f"no file {pattern} in {DATA}"
    return sorted(str(path.relative_to(DATA)) for path in found)


def _compressed(path: Path) -> Path:
    return path.with_name(path.name + ".gz")


def raw_cells(payload: bytes, column: str, delimiter: str = "|") -> list[str]:
    """Return a column of a table by counting delimiters, whatever newlines its texts contain.

    Not for the first and last columns: their cells are not separated by a delimiter.
    """
    header, _, rest = payload.decode().partition("\n")
    columns = header.split(delimiter)
    at, width = columns.index(column), len(columns) - 1
    assert 0 < at < width
    pieces = rest.split(delimiter)
    assert (len(pieces) - 1) % width == 0
    return pieces[at::width]


def raw_milliseconds(text: str) -> int:
    days, _, clock = text.rpartition("-")
    whole, _, fraction = clock.partition(".")
    total = 24 * int(days or 0)
    for part in ["0", *whole.split(":")][-3:]:
        total = total * 60 + int(part)
    return total * 1000 + int(fraction.ljust(3, "0"))
