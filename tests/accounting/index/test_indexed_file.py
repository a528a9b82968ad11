"""Identification of indexed files, and atomic replacement of indexes."""

import gzip
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ccpipe.accounting.index import Indexed, identify, read_note, replaced
from ccpipe.errors import CreateError, DataError

SCHEMA = pa.schema([("offset", pa.int64())])


def indexed(path: Path, directory: Path) -> Path:
    identity = identify(path)
    assert identity is not None
    target = directory / f"{identity}.parquet"
    with replaced(target, SCHEMA) as parquet:
        found = Indexed(target, path, identity, path.stat().st_size, 2, is_packed=False)
        parquet.add_key_value_metadata(found.note())
    return target


def test_identify_is_stable(tmp_path: Path) -> None:
    """When it grows, is renamed or compressed; comments and incomplete lines do not count."""
    path = tmp_path / "accounting"
    path.write_bytes(b"# comment\n\nfirst record\nsecond record\n")
    known = identify(path)
    with path.open("ab") as file:
        file.write(b"third\n")
    packed = tmp_path / "accounting.0.gz"
    packed.write_bytes(gzip.compress(b"first record\nother second\n"))
    assert known == identify(path) == identify(packed)
    assert identify(path, 2) not in (known, identify(packed, 2))
    path.write_bytes(b"first rec")
    assert identify(path) is None


def test_index_note_round_trips(tmp_path: Path) -> None:
    """Other files are rejected by name."""
    path = tmp_path / "accounting"
    path.write_bytes(b"record\n")
    target = indexed(path, tmp_path / "index")
    assert read_note(target) == Indexed(target, path, target.stem, 7, 2, is_packed=False)
    other = tmp_path / "other.parquet"
    pq.write_table(pa.table({"x": [1]}), other)
    for index in (other, path, tmp_path / "none"):
        with pytest.raises(DataError, match="not an index of accounting"):
            read_note(index)


def test_index_is_replaced_atomically(tmp_path: Path) -> None:
    """A failure leaves the previous one, and no other file."""
    target = tmp_path / "x.parquet"
    target.write_bytes(b"before")
    with pytest.raises(KeyError), replaced(target, SCHEMA):
        raise KeyError
    assert [path.name for path in tmp_path.iterdir()] == ["x.parquet"]
    assert target.read_bytes() == b"before"
    with pytest.raises(CreateError), replaced(target / "directory" / "y.parquet", SCHEMA):
        pass
