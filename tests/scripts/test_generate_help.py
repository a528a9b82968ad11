"""The table behind ``--help``: written from the code."""

import subprocess
import sys
from pathlib import Path

from ccpipe.cli.console.command_table import TABLE
from tests.paths import ROOT

SCRIPT = ROOT / "scripts/generate_help.py"


def test_the_table_is_as_the_script_would_write_it(tmp_path: Path) -> None:
    """A command that was changed is shown as it is."""
    written = tmp_path / "commands.jsonl"
    subprocess.run([sys.executable, SCRIPT, written], check=True)
    assert written.read_text() == TABLE.read_text(), (
        "python scripts/generate_help.py ccpipe/cli/console/commands.jsonl"
    )
