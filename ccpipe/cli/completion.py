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

_ZSH_MESSAGE = re.compile(r"^( +'\*:)(?:[^':\\]|\\.|'\\'')*(?=' \\\n)", re.MULTILINE)
"""Descriptions of arguments without completion; with them, zsh lists options but inserts none."""

_ZSH_NOTHING = r"\1 :{:}"
"""The description and the action of an argument that zsh does not complete; without them, it would
complete no options after the argument."""


_ZSH_ARGUMENTS = "_arguments -C "
"""Begins the specification of a command with subcommands. Without ``-A``, zsh takes an option of a
subcommand for the outer command's if both have one of that name."""

_AND_FILES = {
    "bash": ('COMP_CWORD}" 2>/dev/null', '; compgen -f -- "$cur"'),
    "zsh": ("compadd -d _cyc_disp -a _cyc_vals", "\n  _files"),
    "fish": (
        r"'^([^\t]*\t[^\t]*)\t.*$' '$1'",
        "\n    __fish_complete_path (commandline -ct)",
    ),
}
"""Where the library's script takes candidates from us, and what adds files to them: the name of a
recipe can be a file as well."""


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
    candidates, files = _AND_FILES[shell]
    script = script.replace(candidates, candidates + files)
    if shell == "zsh":
        script = script.replace(_ZSH_ARGUMENTS, f"{_ZSH_ARGUMENTS}-A '-*' ")
        script = _ZSH_MESSAGE.sub(_ZSH_NOTHING, script) + "\n" + ZSH_START
    print(script)
