#!/usr/bin/env python3
"""Write the table behind ``--help`` from the commands' signatures and docstrings.

::

    python scripts/generate_help.py ccpipe/cli/console/commands.jsonl
"""

import sys
from pathlib import Path

from command_tree import commands

if __name__ == "__main__":
    text = "".join(command.to_json() for command in commands())
    Path(sys.argv[1]).write_text(text, encoding="utf-8")
