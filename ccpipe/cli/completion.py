"""``ccpipe completion``: scripts that complete commands and options in a shell."""

import re
from typing import Literal

from ccpipe.errors import UsageError

Shell = Literal["bash", "zsh", "fish"]

ZSH_START = """
if [[ $funcstack[1] == _ccpipe ]]; then
  _cyclopts_ccpipe "$@"
else
  compdef _cyclopts_ccpipe ccpipe
fi"""
"""The library's script defines a function only; zsh has to call it, from a file in $fpath too."""

_ZSH_MESSAGE = re.compile(r"^ +'\*:(?:[^':\\]|\\.|'\\'')*' \\\n", re.MULTILINE)
"""Descriptions of arguments without completion; with them, zsh lists options but inserts none."""


_ZSH_ARGUMENTS = "_arguments -C "
"""Begins the specification of a command with subcommands. Without ``-A``, zsh takes an option of a
subcommand for the outer command's if both have one of that name."""


def completion(shell: Shell | None = None, /) -> None:
    """Print the completion script for a shell.

    New shells load it from the paths in the examples; for zsh the directory must be
    in $fpath.

    Examples: ccpipe completion bash > ~/.bash_completion.d/ccpipe
              ccpipe completion zsh > ~/.zfunc/_ccpipe
              ccpipe completion fish > ~/.config/fish/completions/ccpipe.fish

    Parameters
    ----------
    shell
        Name of the shell.
    """
    if shell is None:
        raise UsageError("SHELL is missing (one of bash, zsh, fish); see ccpipe completion --help")
    from ccpipe.cli.app import app

    script = app.generate_completion(shell=shell).rstrip()
    if shell == "zsh":
        script = script.replace(_ZSH_ARGUMENTS, f"{_ZSH_ARGUMENTS}-A '-*' ")
        script = _ZSH_MESSAGE.sub("", script) + "\n" + ZSH_START
    print(script)
