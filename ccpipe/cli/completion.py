"""``ccpipe completion``: scripts that complete commands and options in a shell."""

from typing import Literal

from ccpipe.errors import UsageError

Shell = Literal["bash", "zsh", "fish"]


def completion(shell: Shell | None = None, /) -> None:
    """Print the completion script for a shell.

    New shells load it from the paths in the examples; for zsh the folder must be
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
        raise UsageError("which shell? `ccpipe completion bash`, zsh or fish")
    from ccpipe.cli.app import app

    print(app.generate_completion(shell=shell))
