"""Kills process groups whose parent died: a separate program, run by its path.

It reads lines from its standard input: ``+123`` adds a group, ``-123`` removes it. The input ends
when the parent ends, in whatever way; then the remaining groups are killed.
"""

import contextlib
import os
import signal
import sys


def main() -> None:
    os.setsid()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        # A service manager signals this process along with its parent.
        signal.signal(number, signal.SIG_IGN)
    groups: set[int] = set()
    for line in sys.stdin:
        group = int(line[1:])
        (groups.add if line[0] == "+" else groups.discard)(group)
    for group in groups:
        with contextlib.suppress(OSError):
            os.killpg(group, signal.SIGKILL)


if __name__ == "__main__":
    main()
