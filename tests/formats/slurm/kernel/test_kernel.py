"""The compiled kernel and the Python code read the same records out of the same bytes."""

import random
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.formats.slurm import SacctReader, SacctRow
from ccpipe.formats.slurm.reading import ParsedOutput
from ccpipe.formats.slurm.text import plain_rows
from tests.conftest import needs_kernel
from tests.formats.slurm.captured import OSLO

pytestmark = needs_kernel
COLUMNS = (
    "JobID", "JobIDRaw", "User", "State", "Submit", "MinCPU", "UserCPU", "MaxRSS", "AveDiskRead",
    "ExitCode", "JobName",
)  # fmt: skip
CELLS = {
    "JobID": ("1", "1.batch", "13_2", "13_[1-3%2]", "17+1.0", "0", "12345678901", "1.", "x", ""),
    "JobIDRaw": ("1", "1.batch", "13", "18.0", "1.a_b", ""),
    "User": ("", "anna", "jörg", "x" * 300),
    "State": ("COMPLETED", "CANCELLED by 1000", "", "Unknown", "9"),
    "Submit": (
        "2026-11-20T10:32:28", "2026-11-20T10:60:28", "2026-11-20T10:32.28", "1795170834", "0",
        "Unknown", "", "2026-10-25T02:30:00", "2026-11-20T10:32:28Z", "2026-11-20 10:32:28",
    ),
    "MinCPU": ("00:00:07", "23:59:59", "99:99:99", "1-02:03:04", "00:00:0x", "", "INVALID", "1:2"),
    "UserCPU": ("00:14.493", "59:59.999", "99:99.999", "00:14.4933", "00:1x.493", "UNLIMITED"),
    "MaxRSS": (
        "93585K", "0", "K", "", "123456789012345678", "999999999999999T", "9007199254740993",
        "1.5G", "0.005M", "1.", ".5K", "7k", "2Z", "12345678.12345678M", "-1", "1.2.3K",
        "\N{ARABIC-INDIC DIGIT ONE}K",
    ),
    "AveDiskRead": ("0.03M", "32.04M", "0.00M", "1.5", "2.5", "0.5", "1e3"),
    "ExitCode": ("0:0", "0:125", "", "x"),
    "JobName": ("a", "b|c", "d\ne", "", "caf\udce9", "None"),
}  # fmt: skip
USUAL = {name: cells[:3] for name, cells in CELLS.items()} | {"JobName": ("a", "None")}


def read(payload: bytes, size: int, zone: ZoneInfo = OSLO) -> ParsedOutput[SacctRow]:
    """Read in chunks of a size."""
    reader = SacctReader(columns=COLUMNS, zone=zone)
    whole: ParsedOutput[SacctRow] = ParsedOutput()
    for start in range(0, len(payload), size):
        whole.extend(reader.feed(payload[start : start + size]))
    whole.extend(reader.flush())
    return whole


def table(seed: int, odd: float) -> bytes:
    """Return rows of which a share has cells of any shape; the others' are usual."""
    chance = random.Random(seed)
    lines = []
    for _ in range(40):
        cells = CELLS if chance.random() < odd else USUAL
        row = [chance.choice(cells[name]) for name in COLUMNS]
        if cells is USUAL:
            row[1] = row[0]
        lines.append("|".join(row))
    return ("\n".join(lines) + "\n").encode("utf-8", "surrogateescape")


@given(st.integers(), st.sampled_from([0, 0.02, 0.3]), st.integers(1, 3000))
def test_both_give_one_answer(seed: int, odd: float, size: int) -> None:
    """For rows of all shapes, cut anywhere: records and rejected rows alike."""
    payload = table(seed, odd)
    compiled = read(payload, size)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plain_rows, "KERNEL", None)
        assert compiled == read(payload, size)


@given(st.binary(max_size=300), st.integers(1, 100))
def test_any_bytes(payload: bytes, size: int) -> None:
    """Nothing breaks the kernel, and what it reads is what Python reads."""
    payload = payload.replace(b"\x00", b"1|" * 5)
    compiled = read(payload, size)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plain_rows, "KERNEL", None)
        assert compiled == read(payload, size)
