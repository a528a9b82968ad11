"""``ccpipe completion``: scripts that the shells accept and that know the commands."""

import subprocess

import pytest

from ccpipe.cli.commands import COMMANDS
from tests.cli.command import ccpipe


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_commands_and_options_are_completed(shell: str) -> None:
    """All commands, and options of those in folders too."""
    shown = ccpipe("completion", shell)
    assert (shown.code, shown.err) == (0, "")
    for word in (*COMMANDS, "dry-run", "since"):
        assert word in shown.out


def test_bash_completes_a_line() -> None:
    """The real shell, asked as it asks at the Tab key."""
    script = ccpipe("completion", "bash").out
    ask = (
        "COMP_WORDS=(ccpipe ta); COMP_CWORD=1; COMP_LINE='ccpipe ta'; COMP_POINT=9\n"
        "function=$(complete -p ccpipe | sed 's/.*-F \\([^ ]*\\).*/\\1/')\n"
        '$function ccpipe ta ccpipe; printf "%s\\n" "${COMPREPLY[@]}"\n'
    )
    done = subprocess.run(
        ["bash", "--norc", "-c", script + "\n" + ask], capture_output=True, text=True, check=False
    )
    assert done.stdout.split() == ["tail"], done.stderr


def test_a_shell_must_be_named() -> None:
    """Exit code 64."""
    assert ccpipe("completion").code == 64
    assert ccpipe("completion", "tcsh").code == 64
