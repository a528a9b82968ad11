"""``RowFile``: after a crash, wherever it cut the file, only whole rows are left."""

import asyncio
import csv
import json
import os
import signal
import sys
import tempfile
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ccpipe.errors import EncodeError
from ccpipe.formats.lineprotocol import to_lines
from ccpipe.formats.rows import CSV_HEADER, encode_csv, encode_json
from ccpipe.message import Message
from ccpipe.sinks.file import FileSink, RowFile
from tests.conftest import eventually
from tests.sinks.conftest import NOON, messages_with, metric

TEXT = st.text(st.sampled_from(list('a,"\n\r')), max_size=8)
ENCODE = {"csv": encode_csv, "json": encode_json}


@settings(max_examples=100)
@given(
    st.sampled_from(["csv", "json"]),
    st.lists(st.builds(metric, TEXT) | messages_with(), min_size=1, max_size=4),
    st.data(),
)
def test_a_row_cut_off_is_removed(
    form: Literal["csv", "json"], messages: list[Message], data: st.DataObject
) -> None:
    """Also one of several lines; rows before it stay, and those after it begin on their own."""
    try:
        rows = [ENCODE[form]([message]) for message in messages]
    except EncodeError:
        return  # NaN, or a time that RFC 3339 has no year for
    payload = b"".join(rows)
    cut = data.draw(st.integers(0, len(payload)))
    whole = [row for n, row in enumerate(rows) if len(b"".join(rows[: n + 1])) <= cut]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows"
        path.write_bytes(payload[:cut])
        file = RowFile(path, quote=b'"' if form == "csv" else b"")
        file.append(rows[0])
        file.close()
        assert path.read_bytes() == b"".join(whole) + rows[0]


async def test_csv_begins_with_its_header(tmp_path: Path) -> None:
    """Once in a file, whoever goes on with it, and once where a crash left a part of it."""
    path = tmp_path / "rows.csv"
    path.write_bytes(CSV_HEADER[:20])
    for value in (1.0, 2.0):
        async with FileSink(path=str(path), format="csv") as sink:
            await sink.write(to_lines([metric(value)]))
    with path.open(newline="") as file:
        found = list(csv.DictReader(file))
    assert [(row["time"], row["hostname"], row["value"]) for row in found] == [
        ("2025-02-20T12:00:00Z", "n1", "1.0"),
        ("2025-02-20T12:00:00Z", "n1", "2.0"),
    ]


RECIPE = """
[source]
use = "stdin"
[sink]
use = "file"
path = "{path}"
format = "{form}"
rotate_size = "4MiB"
[batch]
age = "0s"
"""


@pytest.mark.parametrize(
    "form", ["line", *(pytest.param(each, marks=pytest.mark.long) for each in ("json", "csv"))]
)
async def test_a_bridge_is_killed_while_it_writes(tmp_path: Path, form: str) -> None:
    """Every file is rows and nothing else after the next one has begun, and no number is missing.

    What was read last may be missing: standard input hands nothing over again.
    """
    path, recipe = tmp_path / "rows.out", tmp_path / "recipe.toml"
    recipe.write_text(RECIPE.format(path=path, form=form))
    command = [sys.executable, "-m", "ccpipe", "bridge", str(recipe)]
    process = await asyncio.create_subprocess_exec(
        *command, stdin=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
    )
    assert process.stdin is not None

    async def feed() -> None:
        assert process.stdin is not None
        number = 0
        while True:
            rows = range(number, number + 20_000)
            lines = (f"m,cluster=fox,hostname=n1 value={n} {NOON // 10**9 + n}\n" for n in rows)
            process.stdin.write("".join(lines).encode())
            await process.stdin.drain()
            number += 20_000

    feeding = asyncio.create_task(feed())
    try:
        await eventually(lambda: len([*tmp_path.glob("rows-*")]) >= 2 or feeding.done())
        await asyncio.sleep(int.from_bytes(os.urandom(1)) / 1000)  # the moment is what varies
    finally:
        process.send_signal(signal.SIGKILL)
        await process.wait()
        feeding.cancel()
        await asyncio.gather(feeding, return_exceptions=True)
        process.stdin.close()
    sink = FileSink(path=str(path), format=form)  # type: ignore[arg-type] # one of the three
    async with sink:
        pass
    files = [*sorted(tmp_path.glob("rows-*")), path]
    numbers = [number for each in files if each.exists() for number in _numbers(each, form)]
    assert len(numbers) > 10_000
    assert numbers == list(range(len(numbers)))


def _numbers(path: Path, form: str) -> list[float]:
    """Read the values of a file; a line of line protocol that was cut off is marked as torn."""
    with path.open(newline="") as file:
        if form == "json":
            return [json.loads(line)["value"] for line in file]
        if form == "csv":
            return [float(row["value"]) for row in csv.DictReader(file, strict=True)]
        lines = [line for line in file if not line.endswith(" torn\n")]
        return [float(line.split()[1].removeprefix("value=")) for line in lines]
