"""``ccpipe completion``: scripts that complete commands and options in a shell."""

from typing import Literal

from ccpipe.errors import UsageError

Shell = Literal["bash", "zsh", "fish"]


def completion(shell: Shell | None = None, /) -> None:
    """Print what completes commands and options in a shell.

    New shells read it from where the examples put it; for zsh that is a folder
    of its $fpath.

    Examples: ccpipe completion bash > ~/.bash_completion.d/ccpipe
              ccpipe completion zsh > ~/.zfunc/_ccpipe
              ccpipe completion fish > ~/.config/fish/completions/ccpipe.fish

    Parameters
    ----------
    shell
        The shell that reads it.
    """
    if shell is None:
        raise UsageError("which shell? `ccpipe completion bash`, zsh or fish")
    from ccpipe.cli.app import app

    print(app.generate_completion(shell=shell))
