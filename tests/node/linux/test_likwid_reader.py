"""The program that measures LIKWID's groups, run as the collector runs it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from ccpipe.node.linux import likwid_reader


def run(*arguments: str, lines: int) -> tuple[list[dict[str, list[float | None]]], str, int]:
    done = subprocess.run(
        [sys.executable, str(Path(likwid_reader.__file__)), *arguments],
        input="\n" * lines, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    return [json.loads(line) for line in done.stdout.splitlines()], done.stderr, done.returncode


def test_it_says_when_it_counts_and_answers_each_line(library: str) -> None:
    """Its output is JSON alone, whatever the library prints; what is no number is null."""
    (first, *samples), said, code = run(library, "direct", "0,1", "MEM_DP", lines=2)
    assert (first, code) == ({}, 0), said
    assert (
        samples
        == [
            {
                "CPI": [0.5, 0.5],
                "DP [MFLOP/s]": [100.0, 200.0],
                "Memory bandwidth [MBytes/s]": [1000.0, 0.0],
                "L3 [MBytes/s]": [7.0, None],
            }
        ]
        * 2
    )


def test_groups_are_measured_in_turn(library: str) -> None:
    (_, *samples), _, _ = run(library, "", "0", "MEM_DP,FLOPS_SP", lines=4)
    assert ["DP [MFLOP/s]" in sample for sample in samples] == [True, False, True, False]


@pytest.mark.parametrize(
    ("hwthreads", "group", "reason"),
    [("7", "MEM_DP", "perfmon_init failed"), ("0", "NONE", "this processor has no group 'NONE'")],
)
def test_what_cannot_be_counted_ends_it_with_a_reason(
    library: str,
    hwthreads: str,
    group: str,
    reason: str,
) -> None:
    samples, said, code = run(library, "", hwthreads, group, lines=1)
    assert (samples, code) == ([], 1)
    assert said.splitlines()[-1] == reason


def test_a_library_that_is_missing_is_named(tmp_path: Path) -> None:
    _, said, code = run(str(tmp_path / "liblikwid.so"), "", "0", "MEM_DP", lines=0)
    assert code == 1
    assert "liblikwid.so" in said
