"""sacct's output in either format, from a stream."""

import gzip
import io
from codecs import BOM_UTF8
from datetime import UTC

import pytest

from ccpipe.formats.slurm import read_sacct, read_sacct_json
from ccpipe.formats.slurm.sacct_stream import read_stream
from tests.paths import TEST_DATA

DATA = TEST_DATA / "slurm" / "sacct"


@pytest.mark.parametrize("name", ["phase1_linux.all_fields_D.txt.gz", "phase1_linux.json.gz"])
def test_the_format_is_found(name: str) -> None:
    """The rows are those of the format's own reader, however long the stream's pieces are."""
    payload = gzip.decompress((DATA / name).read_bytes())
    wanted = read_sacct_json(payload) if "json" in name else read_sacct(payload, zone=UTC)
    found = [row for part in read_stream(io.BytesIO(payload), zone=UTC) for row in part.records]
    assert found == wanted.records
    marked = io.BytesIO(BOM_UTF8 + payload)  # as editors write it
    assert [row for part in read_stream(marked, zone=UTC) for row in part.records] == found
