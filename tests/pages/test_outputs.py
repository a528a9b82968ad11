"""Outputs that pages show below a command are those of the command, but for what varies.

Numbers, times, paths and widths of columns are masked; an ellipsis stands for the rest of a line.
"""

import gzip
import re
import shlex
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import pytest

from tests.cli.command import command
from tests.pages.test_command_lines import FENCE, PAGES, Sandbox, calls
from tests.pages.test_command_lines import sandbox as sandbox  # noqa: PLC0414 - a fixture
from tests.paths import ROOT

OPTIONS = {"tail": ["--all", "--cluster", "local"]}
"""Options for commands that otherwise wait for what happens after their start."""

VARIABLES = {"SLURM_JOB_ID": "17", "SLURM_STEP_ID": "0", "CCPIPE_HOSTNAME": "n01"}
"""Of a step, whose report a page shows."""


class Example(NamedTuple):
    """A command of a page and the output below it."""

    page: str
    words: list[str]
    output: list[str]

    def __str__(self) -> str:
        return f"{self.page}: {shlex.join(self.words)}"


def examples(page: str, text: str) -> Iterator[Example]:
    """Yield each ``ccpipe`` after a prompt, if lines that are not commands follow it."""
    for block in FENCE.finditer(text):
        first, *others = re.split(r"^\$ ", block["text"], flags=re.MULTILINE)
        for part in others if not first else ():
            line, *output = part.rstrip().splitlines()
            for words in calls(line) if output else ():
                yield Example(page, words, output)


EXAMPLES = [
    example
    for path in PAGES
    if path.name != "commands.md"
    for example in examples(str(path.relative_to(ROOT)), path.read_text(encoding="utf-8"))
]


def masked(line: str) -> str:
    """Replace what varies from run to run, and join columns by one space."""
    line = re.sub(r"(?<!\S)(?:~|/|\.venv/)\S*/\S*", "PATH", line)
    line = re.sub(r"-?\d[\d.,:]*(?: ?(?:[KMGT]i?B?|B|ns|ms|s|min|h|d|%))?(?!\w)", "0", line)
    return re.sub(r"(?:[ -]{2,}|\s)+", " ", line).strip()


def missing_lines(shown: list[str], printed: list[str]) -> list[str]:
    """Return the lines of a page that the output does not have, in their order."""
    rest = iter([masked(line) for line in printed])
    missing = []
    for line in shown:
        head, is_cut, _ = (part.strip() for part in masked(line).partition("…"))
        kept = [*rest]
        found = next(
            (
                i
                for i, each in enumerate(kept)
                if each.startswith(head) and (is_cut or each == head)
            ),
            None,
        )
        if found is None:
            missing.append(line)
        rest = iter(kept if found is None else kept[found + 1 :])
    return missing


def test_mask_hides_only_what_varies() -> None:
    assert masked("07:05:14  vm    cpu_load  18.79  node") == "0 vm cpu_load 0 node"
    assert masked("ccpipe-fritz   812 MiB  1 GiB  39 min") == "ccpipe-fritz 0 0 0"
    assert masked("state in /home/alice/.local/state/x") == "state in PATH"
    assert missing_lines(["a  1", "b …"], ["a 22", "x", "b and more"]) == []
    assert missing_lines(["1  2  …", "a"], ["3 4", "a"]) == []
    assert missing_lines(["a  1", "b"], ["b", "a 2"]) == ["b"]
    assert missing_lines(["NAME  UNREAD"], ["NAME  PENDING"]) == ["NAME  UNREAD"]


def test_outputs_are_found() -> None:
    """A block with a prompt whose command has an output; one without output is not compared."""
    page = "```\n$ ccpipe a b\nA  B\n1  2\n$ ccpipe c | wc\n```\n```sh\nccpipe d\n```\n"
    assert [*examples("p", page)] == [Example("p", ["a", "b"], ["A  B", "1  2"])]
    assert len(EXAMPLES) >= 6


@contextmanager
def prepared(sandbox: Sandbox) -> Iterator[None]:
    """Provide the programs, rows and messages that the pages speak of, and a running bridge."""
    directory = sandbox.directory
    (directory / "solver").write_text("#!/bin/sh\nexec sleep 1.1\n")
    rows = ROOT / "tests/data/slurm/sacct/phase1_linux.all_fields.txt.gz"
    (directory / "rows.txt").write_bytes(gzip.decompress(rows.read_bytes()))
    (directory / "load.lp").write_text(
        "cpu_load,cluster=local,hostname=vm,type=node value=18.79 1740000001\n"
        "cpu_load,cluster=local,hostname=vm,type=node value=18.79 1740000003\n"
    )
    sandbox.run("streams", "apply", "--cluster", "local")
    sandbox.run("send", "load.lp", "--cluster", "local")
    bridge = subprocess.Popen(
        command("bridge", "bridges/parquet.toml"),
        cwd=directory,
        env=sandbox.environment,
        stderr=subprocess.DEVNULL,
    )
    sandbox.environment |= VARIABLES
    try:
        yield
    finally:
        bridge.terminate()
        bridge.wait(60)


@pytest.mark.long
@pytest.mark.timeout(300)
def test_outputs_of_pages_are_printed(sandbox: Sandbox) -> None:
    """Each line that a page shows, in its order."""
    failures = []
    with prepared(sandbox):
        for example in EXAMPLES:
            name, *options = example.words
            printed = sandbox.run(name, *OPTIONS.get(name, []), *options).splitlines()
            if missing := missing_lines(example.output, printed):
                failures.append("\n".join([f"{example} lacks", *missing, "in", *printed]))
    assert not failures, "\n\n".join(failures)
