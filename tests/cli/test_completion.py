"""``ccpipe completion``: scripts that make the real shells complete a line at the Tab key."""

import os
import pty
import re
import select
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ccpipe.cli import COMMANDS
from tests.cli.command import ccpipe
from tests.conftest import program

LINES = [
    ("ccpipe ta", "ccpipe tail"),
    ("ccpipe tail --no-f", "ccpipe tail --no-follow"),
    ("ccpipe tail -o cs", "ccpipe tail -o csv"),
    ("ccpipe tail --kind so", "ccpipe tail --kind sonar"),
    ("ccpipe dead-letters repl", "ccpipe dead-letters replay"),
    ("ccpipe check streams --outp", "ccpipe check streams --output"),
    ("ccpipe convert --from=gr", "ccpipe convert --from=gridengine"),
    ("ccpipe validate some-", "ccpipe validate some-lines.lp"),
    ("ccpipe acct slurm --clus", "ccpipe acct slurm --cluster"),
    ("ccpipe acct slurm -u x --list --clus", "ccpipe acct slurm -u x --list --cluster"),
    (
        "ccpipe acct gridengine some-lines.lp --proj",
        "ccpipe acct gridengine some-lines.lp --project",
    ),
]
"""Text typed before Tab, and the line after it."""
RECIPES = [
    ("ccpipe bridge vict", "ccpipe bridge victoriametrics"),
    ("ccpipe bridge parquet vict", "ccpipe bridge parquet victoriametrics"),
    ("ccpipe bridge our-st", "ccpipe bridge our-store"),
    ("ccpipe bridge --config etc/ccpipe.toml oth", "ccpipe bridge --config etc/ccpipe.toml other"),
    ("ccpipe bridge some-", "ccpipe bridge some-lines.lp"),
    ("ccpipe validate vict", "ccpipe validate victoriametrics"),
    ("ccpipe doctor parquet our-st", "ccpipe doctor parquet our-store"),
    ("ccpipe backfill a.lp --to vict", "ccpipe backfill a.lp --to victoriametrics"),
    ("ccpipe init --recipe vict", "ccpipe init --recipe victoriametrics"),
]
"""The same for recipes, shipped ones and the site's own, for which the script asks ccpipe."""
PATH = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
PROMPT = "READY> "
SECONDS = 60.0


class Terminal:
    """A shell at a terminal, as a person has it."""

    def __init__(self, words: list[str | Path], directory: Path) -> None:
        self._ours, theirs = pty.openpty()
        self._process = subprocess.Popen(
            words, stdin=theirs, stdout=theirs, stderr=theirs, cwd=directory,
            start_new_session=True,
            env={"PATH": PATH, "TERM": "dumb", "HOME": str(directory), "LC_ALL": "C"},
        )  # fmt: skip
        os.close(theirs)

    def type(self, keys: str) -> None:
        os.write(self._ours, keys.encode())

    def read_until(self, pattern: str) -> re.Match[str]:
        shown = ""
        deadline = time.monotonic() + SECONDS
        while (found := re.search(pattern, shown)) is None:
            assert select.select([self._ours], [], [], deadline - time.monotonic())[0], shown
            shown += os.read(self._ours, 65536).decode(errors="replace")
        return found

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._ours)


def completed(terminal: Terminal, typed: str) -> str:
    """Type a line and Tab; return the line then, which the shell is made to print."""
    terminal.type(f"{typed}\t\x01echo line: \x05\r")  # Ctrl-A and Ctrl-E: its start and its end
    return terminal.read_until(r"\nline: (.*?)\r?\n")[1].strip()


def write_files(home: Path) -> None:
    """Write a file to complete, and the configuration and the recipe of a site."""
    home.joinpath("some-lines.lp").touch()
    bridges = home / ".config" / "ccpipe" / "bridges"
    bridges.mkdir(parents=True)
    bridges.joinpath("our-store.toml").touch()
    bridges.with_name("ccpipe.toml").touch()
    (home / "etc" / "bridges").mkdir(parents=True)
    (home / "etc" / "bridges" / "other.toml").touch()


def start(shell: str, directory: Path) -> Terminal:
    """Start a shell that knows our completions, without anybody's own configuration."""
    write_files(directory)
    script = directory / ("_ccpipe" if shell == "zsh" else "ccpipe.bash")
    script.write_text(ccpipe("completion", shell).out)
    if shell == "bash":
        terminal = Terminal([program("bash", "bash"), "--norc", "--noprofile", "-i"], directory)
        first = f"bind 'set enable-bracketed-paste off'; source {script}; PS1='REA''DY> '\r"
    else:
        terminal = Terminal([program("zsh", "zsh"), "-f", "-i"], directory)
        first = (
            f"fpath=({directory} $fpath); autoload -Uz compinit; compinit -u -d {directory}/dump;"
            " bindkey -e; unsetopt prompt_cr prompt_sp; PS1='REA''DY> '\r"
        )
    terminal.type(first)
    terminal.read_until(PROMPT)
    return terminal


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_script_has_commands_and_options(shell: str) -> None:
    """All commands, and their options, also of subcommands."""
    shown = ccpipe("completion", shell)
    assert (shown.code, shown.err) == (0, "")
    for word in (*COMMANDS, "dry-run", "since"):
        assert word in shown.out


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_shell_completes_line_at_tab_key(shell: str, tmp_path: Path) -> None:
    """Commands, options, their values, recipes and files, in a shell at a terminal."""
    terminal = start(shell, tmp_path)
    try:
        found = [completed(terminal, typed) for typed, _ in (*LINES, *RECIPES)]
    finally:
        terminal.close()
    assert found == [wanted for _, wanted in (*LINES, *RECIPES)]


def test_zsh_accepts_script_from_pipe(tmp_path: Path) -> None:
    """``source <(ccpipe completion zsh)``, as in many ``.zshrc``."""
    script = tmp_path / "script"
    script.write_text(ccpipe("completion", "zsh").out)
    script_text = f"autoload -Uz compinit; compinit -u -D; source {script}; print $_comps[ccpipe]"
    done = subprocess.run(
        [program("zsh", "zsh"), "-f", "-c", script_text], capture_output=True, text=True, check=True
    )
    assert (done.stdout, done.stderr) == ("_cyclopts_ccpipe\n", "")


def test_fish_completes_line(tmp_path: Path) -> None:
    """The real shell lists its suggestions for the Tab key, the best ones first."""
    write_files(tmp_path)
    script = tmp_path / "ccpipe.fish"
    script.write_text(ccpipe("completion", "fish").out)
    script_text = "\n".join(f"complete -C '{typed}' | head -n 1" for typed, _ in (*LINES, *RECIPES))
    done = subprocess.run(
        [program("fish", "fish"), "--no-config", "-c", f"source {script}\n{script_text}"],
        capture_output=True, text=True, check=True, cwd=tmp_path,
        env={"PATH": PATH, "TERM": "dumb", "HOME": str(tmp_path)},
    )  # fmt: skip
    offered = [line.partition("\t")[0] for line in done.stdout.splitlines()]
    assert offered == [wanted.split()[-1] for _, wanted in (*LINES, *RECIPES)], done.stderr


def test_completion_requires_name_of_shell() -> None:
    """Exit code 64."""
    assert ccpipe("completion").code == 64
    assert ccpipe("completion", "tcsh").code == 64
