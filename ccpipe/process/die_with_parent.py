"""Run a program that ends when its parent dies: a separate program, run by its path.

``die_with_parent.py PARENT COMMAND [ARGUMENT …]`` requests a SIGTERM on the death of its parent
from the kernel, then executes the command. In ``preexec_fn``, between fork and exec, the request
could deadlock on a lock that another thread held at the fork.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1

_prctl = getattr(ctypes.CDLL(None), "prctl", None)  # Linux only


def die_with_parent() -> None:
    """Have the kernel end this process when its parent dies (Linux only; no effect elsewhere)."""
    if _prctl is not None:
        _prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def main(parent: int, command: list[str]) -> None:
    """Execute the command, unless the parent has already died."""
    die_with_parent()
    if os.getppid() == parent:
        try:
            os.execvp(command[0], command)  # noqa: S606 - its caller names it
        except OSError as error:
            sys.exit(f"{command[0]}: {error.strerror}")


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
