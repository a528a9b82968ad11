"""Child processes: bounded in time and size, and none outlives this process."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from ccpipe.process import child, child_guard
from ccpipe.process.child import run
from tests.processes import is_alive, wait_until_ended


def test_program_receives_input_without_having_to_read_it() -> None:
    """Its standard input is the given text; without one it is empty."""
    assert run(["cat"], timeout=20, given=b"fs_io_s\n") == b"fs_io_s\n"
    assert run(["cat"], timeout=20) == b""
    assert run(["true"], timeout=20, given=b"x" * 60_000) == b""


def test_timeout_kills_whole_process_group(tmp_path: Path) -> None:
    """Including processes that the program started."""
    pids = tmp_path / "pids"
    script = f"sleep 600 & echo $! $$ > {pids}; sleep 600"
    for seconds in (0.5, 5, 50):  # a loaded machine may not begin the script in half a second
        with pytest.raises(ChildProcessError, match=f"took more than {seconds} s"):
            run(["sh", "-c", script], timeout=seconds)
        if pids.exists() and len(started := pids.read_text().split()) == 2:
            break
    wait_until_ended(*map(int, started))


def test_program_that_only_closes_output_is_killed() -> None:
    with pytest.raises(ChildProcessError, match=r"took more than 0\.3 s"):
        run(["sh", "-c", "exec >&- 2>&-; sleep 600"], timeout=0.3)


def test_program_with_too_much_output_is_killed() -> None:
    """The memory used is bounded."""
    with pytest.raises(ChildProcessError, match="printed more than 10000 bytes"):
        run(["yes"], timeout=20, output=10_000)


def test_large_standard_error_does_not_block() -> None:
    """A full pipe would hang the program; the error shows the beginning."""
    script = "head -c 300000 /dev/zero | tr '\\0' x >&2; exit 1"
    with pytest.raises(ChildProcessError) as caught:
        run(["sh", "-c", script], timeout=20)
    assert 200 < len(str(caught.value)) < 300


def test_no_file_descriptor_stays_open() -> None:
    run(["true"], timeout=20)
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    for _ in range(3):
        run(["true"], timeout=20)
        with pytest.raises(ChildProcessError):
            run(["false"], timeout=20)
        with pytest.raises(ChildProcessError):
            run(["sleep", "600"], timeout=0.01)
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208


PARENT = """
import sys, threading
from ccpipe.process.child import run
for name in ("one", "two"):
    # The guard learns of a program just after its start; only then it can be relied on.
    script = f"sleep 2; sleep 600 & echo $! > {sys.argv[1]}/{name}; sleep 600"
    threading.Thread(target=run, args=(["sh", "-c", script],), kwargs={"timeout": 500}).start()
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_processes_end_with_killed_parent(tmp_path: Path, number: int) -> None:
    """Both the programs and their background processes, however the parent ends."""
    parent = subprocess.Popen([sys.executable, "-c", PARENT, str(tmp_path)])
    deadline = time.monotonic() + 90
    while len([path for path in tmp_path.iterdir() if path.read_text().strip()]) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    below = psutil.Process(parent.pid).children(recursive=True)
    started = [int(path.read_text()) for path in tmp_path.iterdir()]
    assert set(started) <= {process.pid for process in below}
    parent.send_signal(number)
    parent.wait(60)
    wait_until_ended(*(process.pid for process in below))


def test_killed_guard_is_replaced() -> None:
    run(["true"], timeout=20)
    first = child._guard._pid
    os.kill(first, signal.SIGKILL)
    wait_until_ended(first)
    run(["true"], timeout=20)
    assert child._guard._pid != first
    assert is_alive(child._guard._pid)


def test_program_has_given_environment() -> None:
    """Without one it has ours."""
    words = [sys.executable, "-c", "import os; print(os.environ.get('TZ'), 'HOME' in os.environ)"]
    given = {**os.environ, "TZ": "Asia/Kathmandu"}
    assert run(words, timeout=20, environment=given).split()[0] == b"Asia/Kathmandu"
    assert run(words, timeout=20).split()[1] == str("HOME" in os.environ).encode()


def test_guard_kills_remaining_groups_at_end_of_input() -> None:
    """A removed group stays; a signal to the guard itself does not end it."""
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


STARTS = """
import asyncio, os, sys
from ccpipe.process import child

async def main():
    process = await child.start(["sleep", "600"])
    print(process.pid, flush=True)
    os.kill(os.getpid(), 9)

asyncio.run(main())
"""


def test_started_program_ends_with_parent() -> None:
    for _ in range(3):
        done = subprocess.run(
            [sys.executable, "-c", STARTS], stdout=subprocess.PIPE, check=False, timeout=60
        )
        assert done.returncode == -9
        wait_until_ended(int(done.stdout))


async def test_started_process_becomes_command() -> None:
    """Process id, arguments, environment and exit code belong to the program."""
    process = await child.start(
        ["sh", "-c", 'test "$A $1" = "b c d" && exit 3', "-", "c d"], environment={"A": "b"}
    )
    assert await process.wait() == 3


async def test_missing_command_is_named() -> None:
    process = await child.start(["/nonexistent/program"], output=asyncio.subprocess.DEVNULL)
    assert await process.wait() == 1
