"""Processes of tests: stopped for a while, and ended."""

import contextlib
import os
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path

import psutil

from tests.conftest import eventually


def is_alive(pid: int) -> bool:
    """Return whether a process runs; a zombie does not."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def wait_until_ended(*pids: int) -> None:
    deadline = time.monotonic() + 90
    while any(map(is_alive, pids)):
        assert time.monotonic() < deadline
        time.sleep(0.01)


@contextlib.asynccontextmanager
async def frozen(pid: int | None) -> AsyncIterator[None]:
    """Stop a process meanwhile; its threads stop one by one, on a busy machine after the signal."""
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    threads = Path(f"/proc/{pid}/task")
    try:
        await eventually(lambda: all(is_stopped(thread) for thread in threads.iterdir()))
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def is_stopped(thread: Path) -> bool:
    return (thread / "stat").read_text().rpartition(")")[2].split()[0] == "T"
