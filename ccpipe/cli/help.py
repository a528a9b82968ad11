"""``ccpipe help``: the help of a command."""


def help(*command: str) -> None:  # noqa: A001 - the command's name
    """Show the help of a command.

    The same as --help after the command.

    Examples: ccpipe help
              ccpipe help tail
              ccpipe help auth init

    Parameters
    ----------
    command
        The command, with its subcommand if it has one; default: a list of all commands.
    """
    from ccpipe.cli.app import run

    run([*command, "--help"], lambda: None)
