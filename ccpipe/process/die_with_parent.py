"""Run a program that ends when its parent dies: a program of its own, run by its path.

``die_with_parent.py PARENT COMMAND [ARGUMENT …]`` asks the kernel for a SIGTERM at the death of its
parent and becomes the command. Done between fork and exec (``preexec_fn``), it could wait forever
for a lock that another thread held at the fork.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1

_prctl = getattr(ctypes.CDLL(None), "prctl", None)  # Linux only


def die_with_parent() -> None:
    """Have the kernel end this process when its parent is killed (Linux; elsewhere nothing)."""
    if _prctl is not None:
        _prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def main(parent: int, command: list[str]) -> None:
    """Become the command, unless the parent has died already."""
    die_with_parent()
    if os.getppid() == parent:
        try:
            os.execvp(command[0], command)  # noqa: S606 - its caller names it
        except OSError as error:
            sys.exit(f"{command[0]}: {error.strerror}")


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
