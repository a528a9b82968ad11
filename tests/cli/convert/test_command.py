"""``ccpipe convert``: formats, options, and reports of bad lines."""

import csv
import gzip
import io
import json
import subprocess
from pathlib import Path

import pytest

from ccpipe.formats.lineprotocol import decode
from tests.cli.command import ccpipe, command, environment

GOOD = b"""\
cpu_load,hostname=e1,type=node value=1.5 1740027951
job,function=start_job,hostname=e1,type=node event="{\\"a\\":1}\\nb" 1740027951123
m,hostname=e2,type=node value=7i 1740027951000000001
"""
MIXED = b"# a comment\n" + GOOD.replace(b"m,", b"broken value=\n\xff value=1 5\nm,")


@pytest.fixture
def mixed(tmp_path: Path) -> Path:
    path = tmp_path / "mixed.line"
    path.write_bytes(MIXED)
    return path


def test_convert_writes_good_lines_and_reports_bad_ones(mixed: Path) -> None:
    """File, line, column, reason and excerpt of each; exit code 65."""
    shown = ccpipe("convert", mixed, "--to", "line")
    assert shown.code == 65
    assert shown.out.encode() == GOOD
    first, second, summary = shown.err.splitlines()
    assert first.startswith(f"{mixed}:4: column 14: the value is neither")
    assert first.endswith(": broken value=")
    assert second.startswith(f"{mixed}:5: column 1: the bytes are not valid UTF-8")
    assert summary.startswith("ccpipe: 2 problems, reported above; 3 values converted")


def test_convert_exits_with_0_for_good_files() -> None:
    """Standard input is read if no file is named; stderr is empty."""
    assert ccpipe("convert", "--to", "line", stdin=GOOD) == (0, GOOD.decode(), "")
    assert ccpipe("convert", "-", "--to", "line", stdin=GOOD) == (0, GOOD.decode(), "")


def test_convert_writes_json_as_one_object_per_line() -> None:
    """It has every part of a message."""
    shown = ccpipe("convert", "--to", "json", stdin=GOOD)
    rows = [json.loads(line) for line in shown.out.splitlines()]
    assert [row["name"] for row in rows] == ["cpu_load", "job", "m"]
    assert [row["value"] for row in rows] == [m.value for m in decode(GOOD)]


def test_convert_writes_one_csv_head_for_all_files(tmp_path: Path) -> None:
    """Several files, compressed or not, become one table."""
    plain, packed = tmp_path / "a.line", tmp_path / "b.line.gz"
    plain.write_bytes(GOOD)
    packed.write_bytes(gzip.compress(GOOD))
    shown = ccpipe("convert", plain, packed, "--to", "csv")
    assert shown.code == 0
    rows = list(csv.DictReader(io.StringIO(shown.out, newline="")))
    assert [row["name"] for row in rows] == ["cpu_load", "job", "m"] * 2
    assert rows[1]["value"] == '{"a":1}\nb'


def test_convert_reads_and_writes_given_precisions() -> None:
    """A timestamp of 5 is in the unit of the input; fractions of the output's unit are cut off."""
    shown = ccpipe("convert", "--to", "line", "--precision", "ns", stdin=b"m value=1 5000000000\n")
    assert shown.out == "m value=1.0 5\n"
    shown = ccpipe("convert", "--to", "line", "--to-precision", "s", stdin=GOOD)
    assert [m.time for m in decode(shown.out.encode())] == [1740027951 * 10**9] * 3


def test_convert_passes_dialect_and_leniency_to_decoder() -> None:
    """--lenient reads the example of the specification."""
    bare = b"job,function=x event={a} 1740027951\n"
    assert ccpipe("convert", "--to", "line", stdin=bare).code == 65
    assert ccpipe("convert", "--to", "line", "--lenient", stdin=bare).code == 0
    text = rb'm log="a\nb" 1740027951' + b"\n"
    shown = ccpipe("convert", "--to", "json", "--dialect", "influx", stdin=text)
    assert json.loads(shown.out)["value"] == r"a\nb"


def test_convert_skips_message_that_format_cannot_represent() -> None:
    """InfluxDB allows a control character in a tag, ClusterCockpit does not."""
    payload = b"\nm,a=x value=1 1740027951\nm,a=\x01 value=2 1740027951\nm,a=y value=3 1740027951\n"
    shown = ccpipe("convert", "--to", "line", "--dialect", "influx", stdin=payload)
    assert shown.code == 65
    assert [m.value for m in decode(shown.out.encode())] == [1.0, 3.0]
    assert shown.err.startswith("stdin:3: ")


def test_convert_writes_to_output_file(mixed: Path, tmp_path: Path) -> None:
    """The exit code and the reports on stderr are the same."""
    target = tmp_path / "out.line"
    shown = ccpipe("convert", mixed, "--to", "line", "--out", target)
    assert (shown.code, shown.out) == (65, "")
    assert target.read_bytes() == GOOD


def test_convert_rejects_input_as_output(mixed: Path) -> None:
    """It would be truncated before it is read."""
    shown = ccpipe("convert", mixed, "--to", "line", "--out", mixed.parent / "." / mixed.name)
    assert shown.code == 64
    assert mixed.read_bytes() == MIXED


@pytest.mark.parametrize(
    ("arguments", "code", "reason"),
    [
        (["missing.line", "--to", "line"], 66, "missing.line: No such file"),
        (["--to", "line", "--lenint"], 64, "unknown option --lenint"),
        (["--to", "xml"], 64, "xml"),
        ([], 64, "--to"),
        (["--to", "line", "--out", "/nonexistent/x"], 73, "/nonexistent/x: No such file"),
    ],
)
def test_convert_rejects_wrong_command_line(arguments: list[str], code: int, reason: str) -> None:
    """The exit code distinguishes usage errors from missing input."""
    shown = ccpipe("convert", *arguments)
    assert (shown.code, shown.out) == (code, "")
    assert reason in shown.err


def test_convert_reports_full_disk() -> None:
    """Lost output is an error."""
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            command("convert", "--to", "line"),
            input=GOOD,
            stdout=full,
            stderr=subprocess.PIPE,
            env=environment(),
            timeout=30,
            check=False,
        )
    assert done.returncode == 74
    assert done.stderr.decode() == "ccpipe: standard output: No space left on device\n"


def test_convert_ends_quietly_when_reader_closes_pipe(tmp_path: Path) -> None:
    """As in ``ccpipe convert … | head``."""
    big = tmp_path / "big.line"
    big.write_bytes(GOOD * 20_000)
    with subprocess.Popen(
        command("convert", big, "--to", "json"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline().startswith(b'{"name":"cpu_load"')
        process.stdout.close()
        assert process.wait(30) == 0
        assert process.stderr.read() == b""


def test_convert_writes_piped_lines_at_once() -> None:
    """``ccpipe tail … | ccpipe convert …`` shows lines as they arrive, not at the end."""
    with subprocess.Popen(
        command("convert", "--to", "json"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment(),
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"m value=1 1740027951\n")
        process.stdin.flush()
        assert json.loads(process.stdout.readline())["value"] == 1
        process.stdin.close()
