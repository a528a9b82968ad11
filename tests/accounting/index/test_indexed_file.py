"""Which file an index is of, and that it is replaced as a whole."""

import gzip
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ccpipe.accounting.index import Indexed, identify, read_note, replaced
from ccpipe.errors import DataError, UnavailableError

SCHEMA = pa.schema([("offset", pa.int64())])


def indexed(path: Path, directory: Path) -> Path:
    identity = identify(path)
    assert identity is not None
    target = directory / f"{identity}.parquet"
    with replaced(target, SCHEMA) as parquet:
        found = Indexed(target, path, identity, path.stat().st_size, 2, is_packed=False)
        parquet.add_key_value_metadata(found.note())
    return target


def test_a_file_keeps_its_id(tmp_path: Path) -> None:
    """When it grows, is renamed or compressed; comments do not count, half a line is none."""
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


def test_what_is_noted_is_read(tmp_path: Path) -> None:
    """And what is no index is named."""
    path = tmp_path / "accounting"
    path.write_bytes(b"record\n")
    target = indexed(path, tmp_path / "index")
    assert read_note(target) == Indexed(target, path, target.stem, 7, 2, is_packed=False)
    other = tmp_path / "other.parquet"
    pq.write_table(pa.table({"x": [1]}), other)
    for index in (other, path, tmp_path / "none"):
        with pytest.raises(DataError, match="no index of accounting"):
            read_note(index)


def test_an_index_is_replaced_when_it_is_whole(tmp_path: Path) -> None:
    """A failure leaves the one before, and no other file."""
    target = tmp_path / "x.parquet"
    target.write_bytes(b"before")
    with pytest.raises(KeyError), replaced(target, SCHEMA):
        raise KeyError
    assert [path.name for path in tmp_path.iterdir()] == ["x.parquet"]
    assert target.read_bytes() == b"before"
    with pytest.raises(UnavailableError), replaced(target / "directory" / "y.parquet", SCHEMA):
        pass
