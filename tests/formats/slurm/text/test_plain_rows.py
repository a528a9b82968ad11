"""Which tables the compiled kernel reads, and that real rows are the same with and without it."""

import pytest

from ccpipe.formats.slurm import SacctReader
from ccpipe.formats.slurm.text import plain_rows
from tests.conftest import needs_kernel
from tests.formats.slurm.captured import OSLO, captured, names

pytestmark = needs_kernel


@pytest.mark.parametrize("name", names("sacct/*.sonar_fields.txt"))
def test_captured_rows(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Real rows are the same with and without the kernel."""
    payload = captured(name)
    compiled = SacctReader(zone=OSLO).read(payload)
    monkeypatch.setattr(plain_rows, "KERNEL", None)
    assert compiled == SacctReader(zone=OSLO).read(payload)


def test_usual_rows_are_read_by_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the tests above would compare Python with itself."""
    header = b"JobID|State|MaxRSS\n"
    reader = SacctReader(zone=OSLO)
    reader.feed(header)
    monkeypatch.setattr("ccpipe.formats.slurm.text.columns.TableReader._read", None)
    found = reader.feed(b"1|COMPLETED|5K\n1.0|COMPLETED|6K\n2|FAILED|\n")
    assert [(str(row.id), row.max_rss) for row in found.records] == [("1", 5120), ("1.0", 6144)]
