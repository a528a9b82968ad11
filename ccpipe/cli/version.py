"""``ccpipe version``."""


def version() -> None:
    """Show the versions that matter.

    x

    Parameters
    ----------
    """
    print("x")
