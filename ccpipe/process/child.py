"""Child processes that end with this process, however it ends.

`start` and `end` are for programs that run in the background, `run` for programs whose output is
needed.
"""

import asyncio
import contextlib
import os
import selectors
import signal
import subprocess
import sys
import threading
from asyncio.subprocess import DEVNULL, Process
from collections.abc import Mapping, Sequence
from pathlib import Path
from time import monotonic

_CHUNK = 65536
_MAX_STDERR = 200  # bytes of standard error in an exception


async def start(
    command: Sequence[str],
    *,
    environment: Mapping[str, str] | None = None,
    output: int | None = None,
) -> Process:
    """Start a program; `output` receives its stdout and stderr, None inherits ours.

    It gets its own session, so that Ctrl-C reaches only this process, which ends its children in
    order.
    """
    launcher = str(Path(__file__).with_name("die_with_parent.py"))
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-I", "-S", launcher, str(os.getpid()), *command),
        env=environment,
        stdin=DEVNULL,
        stdout=output,
        stderr=output,
        start_new_session=True,
    )


async def end(process: Process | None, seconds: float) -> bool:
    """Terminate a child, and kill it after a timeout; return whether it ended by itself."""
    if process is None or process.returncode is not None:
        return True
    process.terminate()
    try:
        async with asyncio.timeout(seconds):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()
        return False
    return True


def run(
    words: Sequence[str],
    *,
    timeout: float,
    output: int = 2**20,
    given: bytes = b"",
    tolerated: int = 0,
    environment: Mapping[str, str] | None = None,
) -> bytes:
    """Run a program with its arguments and return its output.

    `timeout` is in seconds, `output` the maximum number of bytes printed. The standard input
    `given` must fit into a pipe (64 KiB). Bits of the exit code in `tolerated` are not errors.

    The program gets its own process group, which is killed at the end, also if this process is
    killed, so that nothing it started stays behind. Without an `environment` it inherits ours.
    It raises OSError, also if the program takes too long, prints too much or ends with an error.
    """
    process = subprocess.Popen(  # noqa: S603 - the site's own configuration names it
        words,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
        start_new_session=True,
    )
    assert process.stdin is not None
    try:
        _guard.add(process.pid)
        # It may not read its input.
        with contextlib.suppress(BrokenPipeError), process.stdin as pipe:
            pipe.write(given)
        printed, complaint = _read(process, monotonic() + timeout, timeout, output)
        code = process.wait()
    finally:
        # Also descendants still running, which would keep the pipe open or accumulate.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        _guard.remove(process.pid)
        for pipe in filter(None, (process.stdout, process.stderr)):
            pipe.close()
    if code < 0 or code & ~tolerated:
        text = " ".join(complaint.decode(errors="backslashreplace").split())
        raise ChildProcessError(f"ended with {code}: {text}".removesuffix(": "))
    return printed


def _read(
    process: "subprocess.Popen[bytes]", deadline: float, timeout: float, output: int
) -> tuple[bytes, bytes]:
    """Read both outputs to their end; keep only the beginning of the second."""
    assert process.stdout is not None
    assert process.stderr is not None
    late = ChildProcessError(f"took more than {timeout:g} s")
    printed, complaint = bytearray(), bytearray()
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ, printed)
        selector.register(process.stderr, selectors.EVENT_READ, complaint)
        while selector.get_map():
            ready = selector.select(max(0.0, deadline - monotonic()))
            if not ready:
                raise late
            for key, _ in ready:
                chunk = os.read(key.fd, _CHUNK)
                key.data.extend(chunk)
                if not chunk:
                    selector.unregister(key.fileobj)
            del complaint[_MAX_STDERR:]
            if len(printed) > output:
                raise ChildProcessError(f"printed more than {output} bytes")
        if not _has_ended(process, deadline):
            raise late
    return bytes(printed), bytes(complaint)


def _has_ended(process: "subprocess.Popen[bytes]", deadline: float) -> bool:
    try:
        process.wait(max(0.0, deadline - monotonic()))
    except subprocess.TimeoutExpired:
        return False
    return True


class _Guard:
    """The client of ``child_guard.py``, which is started with the first process group.

    The kernel's own mechanism, a signal when the parent dies, reaches only the child itself, not
    its descendants, and must be requested between fork and exec, which is unsafe with threads.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pipe: int | None = None
        self._pid = 0
        self._groups: set[int] = set()

    def add(self, group: int) -> None:
        with self._lock:
            self._groups.add(group)
            self._write(f"+{group}\n")

    def remove(self, group: int) -> None:
        with self._lock:
            self._groups.discard(group)
            self._write(f"-{group}\n")

    def _write(self, line: str) -> None:
        if self._pipe is not None:
            try:
                os.write(self._pipe, line.encode())
            except BrokenPipeError:  # it was killed
                os.close(self._pipe)
                os.waitpid(self._pid, 0)
            else:
                return
        self._start()

    def _start(self) -> None:
        program = str(Path(__file__).with_name("child_guard.py"))
        input_, self._pipe = os.pipe()
        try:
            self._pid = os.posix_spawn(
                sys.executable,
                [sys.executable, "-I", "-S", program],
                os.environ,
                file_actions=[
                    (os.POSIX_SPAWN_DUP2, input_, 0),
                    (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
                    (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
                ],
            )
        finally:
            os.close(input_)
        os.write(self._pipe, "".join(f"+{group}\n" for group in self._groups).encode())


_guard = _Guard()
