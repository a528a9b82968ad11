"""The journeys of a batch: how many files of ccpipe it enters."""

import re
import subprocess
import sys

from scripts.journeys import JOURNEYS
from tests.conftest import needs_kernel
from tests.paths import ROOT


@needs_kernel
def test_no_journey_enters_more_files_than_its_limit() -> None:
    """A reader of a batch's path reads that many files; a change may only lower the number."""
    command = [sys.executable, "-m", "scripts.journeys"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    rows = re.findall(r"^\| (.+?) \| (\d+) \|", done.stdout, re.MULTILINE)
    entered = {name: int(files) for name, files in rows}
    limits = {each.name: each.limit for each in JOURNEYS}
    assert entered.keys() == limits.keys(), done.stderr
    assert {name: n for name, n in entered.items() if n > limits[name]} == {}
    assert min(entered.values()) > 1
    assert done.returncode == 0


def test_contributing_shows_limits() -> None:
    """In the same table as the script."""
    text = (ROOT / "CONTRIBUTING.md").read_text()
    for each in JOURNEYS:
        assert f"| {each.name} | {each.limit} | {each.goal} |" in text
