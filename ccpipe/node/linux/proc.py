"""Reading ``/proc`` and ``/sys``: files of words and numbers, as the kernel writes them.

A missing file raises OSError: this machine does not have it. Content that the kernel never writes
raises DataError with file, line and reason.
"""

import functools
import os
import re
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from operator import sub
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from ccpipe.errors import DataError
from ccpipe.message import Uint

_INT64_MAX = 2**63 - 1
_UINT64_MAX = 2**64 - 1
_MAX_DIGITS = 4300  # of a number that Python parses
_COUNTER = re.compile(r"\d{1,20}", re.ASCII)
_NUMBER = re.compile(r"-?\d{1,18}", re.ASCII)
_RANGE = re.compile(r"(\d{1,5})(?:-(\d{1,5}))?", re.ASCII)  # Linux knows 8192 of them
_CHUNK = 65536
_ESCAPE = re.compile(r"\\([0-7]{3})")
_MOUNT_COLUMNS = 3


def is_there(root: str = "/") -> bool:
    return Path(root, "proc/stat").exists()


def text(path: Path | str) -> str:
    """Return a whole file; invalid UTF-8 becomes surrogates, as in file names."""
    # A quarter of what Path.read_text costs, and a sample reads hundreds of small files.
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        parts = []
        while part := os.read(file, _CHUNK):
            parts.append(part)
    except OSError as error:
        error.filename = str(path)  # a failed read names no file by itself
        raise
    finally:
        os.close(file)
    return b"".join(parts).decode("utf-8", "surrogateescape")


def lines(path: Path | str) -> Iterator[tuple[str, str]]:
    """Yield each line that is not blank, with its place for error messages."""
    name = str(path)
    for number, line in enumerate(text(name).split("\n"), 1):
        if line and not line.isspace():
            yield f"{name}: line {number}", line


def pairs(path: Path) -> dict[str, str]:
    """Return the pairs of a file of lines ``key : value``; of a repeated key, the first."""
    found: dict[str, str] = {}
    for _, line in lines(path):
        key, _, value = line.partition(":")
        found.setdefault(key.strip(), value.strip())
    return found


def word(path: Path | str) -> str | None:
    """Return the content of a file of one word; None if it cannot be read now.

    For files that not every device has, or that fail at times (EIO from a sleeping sensor). Use
    ``text`` for a file that must exist.
    """
    try:
        return text(path).strip()
    except OSError:
        return None


def number(path: Path | str) -> int | None:
    """Return the content of a file of one number; None if it cannot be read now."""
    found = word(path)
    if found is None:
        return None
    if not _NUMBER.fullmatch(found):
        raise DataError(f"{path}: {found!r:.40} is not a number")
    return int(found)


def index(path: Path | str) -> int:
    """Return an index of the kernel; -1 if there is none, as the kernel writes it."""
    found = number(path)
    return -1 if found is None else found


def counter(path: Path | str) -> int | None:
    """Return a counter of 64 bits, the only thing in a file; None if it cannot be read now."""
    found = word(path)
    return None if found is None else counters(str(path), [found], minimum=1)[0]


def names(directory: Path, pattern: str = "*") -> list[str]:
    """Return the sorted names in a directory that match a shell pattern; OSError if none does."""
    found = _sorted(tuple(os.listdir(directory)), pattern)  # noqa: PTH208 - as above
    if not found:
        raise FileNotFoundError(2, f"nothing here is named {pattern}", str(directory))
    return list(found)


@functools.lru_cache(maxsize=64)  # hardware rarely changes
def _sorted(listed: tuple[str, ...], pattern: str) -> tuple[str, ...]:
    return tuple(sorted((name for name in listed if fnmatchcase(name, pattern)), key=_by_number))


def _by_number(name: str) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdecimal() else (0, part) for part in _DIGITS.split(name)]


_DIGITS = re.compile(r"(\d{1,18})", re.ASCII)


def counters(place: str, words: Sequence[str], minimum: int) -> list[int]:
    """Read at least `minimum` counters of 64 bits.

    One beyond a signed integer becomes a ``Uint``, so that it can be written.
    """
    if len(words) < minimum:
        raise DataError(f"{place}: {len(words)} counters, not {minimum}")
    digits = "".join(words)
    if digits.isdecimal() and digits.isascii() and all(words) and len(digits) < _MAX_DIGITS:
        values = list(map(int, words))
        if max(values) <= _INT64_MAX:
            return values
    values = []
    for word in words:
        value = int(word) if _COUNTER.fullmatch(word) else _UINT64_MAX + 1
        if value > _UINT64_MAX:
            raise DataError(f"{place}: {word!r:.40} is not a counter")
        values.append(value if value <= _INT64_MAX else Uint(value))
    return values


def listed(place: str, text: str) -> list[int]:
    """Read a list of numbers as the kernel writes it: ``0-3,8``; an empty one is valid."""
    found: list[int] = []
    for part in filter(None, text.strip().split(",")):
        range_ = _RANGE.fullmatch(part)
        if range_ is None or int(range_[2] or range_[1]) < int(range_[1]):
            raise DataError(f"{place}: {text.strip()!r:.60} is not a list of hardware threads")
        found += range(int(range_[1]), int(range_[2] or range_[1]) + 1)
    return found


def gained(before: Sequence[int] | None, now: Sequence[int]) -> list[int] | None:
    """Return by how much each counter of one device grew between two readings.

    Returns None without a first reading, or if any counter decreased: then the device was replaced
    or a counter overflowed, so the other gains are unknown too.
    """
    if before is None or len(before) != len(now):
        return None
    gains = list(map(sub, now, before))
    return gains if not gains or (min(gains) >= 0 and max(gains) <= _INT64_MAX) else None


def matches(name: str, patterns: Sequence[str]) -> bool:
    return _matches(name, tuple(patterns))


@functools.lru_cache(maxsize=1024)
def _matches(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def tag(name: str) -> str:
    """Return a name escaped for a tag: a line end, for example, becomes ``%0A``."""
    if name.isprintable() and not name.endswith("\\"):
        return name
    return quote(name.encode(errors="surrogateescape"))


class Mount(NamedTuple):
    """One mounted file system."""

    device: str
    point: str
    kind: str


def mounts(root: str = "/") -> tuple[Mount, ...]:
    """Return the mounted file systems in the order of mounting, also those that others hide."""
    return _listed(text(os.path.join(root, "proc/self/mounts")))  # noqa: PTH118 - a third


@functools.lru_cache(maxsize=1)
def _listed(lines: str) -> tuple[Mount, ...]:
    rows = (line.split(" ") for line in lines.split("\n"))
    found = [row[:_MOUNT_COLUMNS] for row in rows if len(row) >= _MOUNT_COLUMNS and row[1]]
    return tuple(Mount(*map(_unescaped, row)) for row in found)


def _unescaped(word: str) -> str:
    """Return a word without the escapes for blanks, line ends and backslashes (fstab(5))."""
    return _ESCAPE.sub(lambda found: chr(int(found[1], 8)), word)
