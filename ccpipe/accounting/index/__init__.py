"""Indexes of accounting files: their files, and atomic replacement."""

import contextlib
import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ccpipe.atomic_file import replacing
from ccpipe.errors import CreateError, DataError, MissingExtra, create_reason
from ccpipe.formats.files import open_stream, read_full

try:
    import pyarrow as pa
    import pyarrow.parquet as pq
except ImportError:
    raise MissingExtra("pyarrow", "parquet") from None

_HEAD = 2**16
"""Maximum bytes up to the end of a file's first record."""


class Indexed(NamedTuple):
    """The metadata of an index: its accounting file."""

    file: Path
    path: Path
    identity: str
    size: int
    """Indexed bytes, after decompression."""
    lines: int
    is_packed: bool

    def note(self) -> dict[str, str]:
        return {
            "path": str(self.path),
            "identity": self.identity,
            "size": str(self.size),
            "lines": str(self.lines),
            "packed": "yes" if self.is_packed else "no",
        }


def read_note(index: Path) -> Indexed:
    """Read the metadata of an index; raises DataError if the file is not an index."""
    try:
        found = pq.read_metadata(index).metadata or {}
        note = {key.decode(): value.decode() for key, value in found.items()}
        return Indexed(
            index,
            Path(note["path"]),
            note["identity"],
            int(note["size"]),
            int(note["lines"]),
            note["packed"] == "yes",
        )
    except (pa.ArrowException, OSError, KeyError, ValueError) as error:
        raise DataError(f"{index}: not an index of accounting: {error}") from None


def identify(path: Path, count: int = 1) -> str | None:
    """Return an id that stays the same when a file grows, is renamed or compressed.

    A hash of its first lines except comments; None if they are not written yet.
    """
    first = []
    with open_stream(path) as stream, contextlib.suppress(DataError):
        for line in read_full(stream, _HEAD).splitlines(keepends=True):
            if len(line) > 2 and not line.startswith(b"#") and line.endswith(b"\n"):  # noqa: PLR2004
                first.append(line)
                if len(first) == count:
                    return hashlib.sha256(b"".join(first)).hexdigest()[:32]
    return None


def is_file_of(path: Path, identity: str, count: int = 1) -> bool:
    return path.is_file() and identify(path, count) == identity


def known_index(target: Path, path: Path, count: int = 1) -> Indexed | None:
    """Return the metadata of an existing index.

    Raises DataError if it is of another file that still has the same beginning as `path`: one of
    them is a copy.
    """
    known = read_note(target) if target.exists() else None
    if known and known.path != path.absolute() and is_file_of(known.path, known.identity, count):
        raise DataError(f"{path}: same beginning as {known.path}, already indexed (a copy?)")
    return known


@contextlib.contextmanager
def replaced(target: Path, schema: pa.Schema, **encoding: Any) -> Iterator[pq.ParquetWriter]:
    """Write an index that replaces the previous one when it is complete.

    Raises CreateError if it cannot be written.
    """
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with replacing(target) as draft, pq.ParquetWriter(draft, schema, **encoding) as parquet:
            yield parquet
    except OSError as error:
        raise CreateError(f"{target.parent}: {create_reason(error)}") from None


def find_file(note: Indexed, paths: Sequence[Path], count: int = 1) -> Path | None:
    """Find the indexed file: among `paths`, at its path, or renamed in its directory."""
    stem = note.path.name.partition(".")[0]
    siblings = sorted(note.path.parent.glob(f"{stem}*")) if note.path.parent.is_dir() else []
    for path in (*paths, note.path, *siblings):
        if is_file_of(path, note.identity, count):
            return path
    return None
