"""The program that kills process groups whose parent died."""

import signal
import subprocess
import sys
from pathlib import Path

from ccpipe.process import child_guard
from tests.processes import is_alive, wait_until_ended


def test_groups_that_are_left_at_the_end_of_input_are_killed() -> None:
    """One that was removed stays; a signal to the guard itself does not end it."""
    sleepers = [subprocess.Popen(["sleep", "60"], start_new_session=True) for _ in range(2)]
    left, removed = (sleeper.pid for sleeper in sleepers)
    command = [sys.executable, "-I", "-S", str(Path(child_guard.__file__))]
    guard = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert guard.stdin is not None
    guard.stdin.write(f"+{left}\n+{removed}\n-{removed}\n+999999999\n".encode())
    guard.stdin.flush()
    try:
        assert is_alive(left)
        guard.communicate()
        assert guard.returncode == 0
        wait_until_ended(left)
        assert sleepers[0].wait(20) == -signal.SIGKILL
        assert is_alive(removed)
    finally:
        for sleeper in sleepers:
            sleeper.kill()
            sleeper.wait()
