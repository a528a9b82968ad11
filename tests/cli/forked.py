"""Short commands in processes that are forked from one which has imported them.

The interpreter's start and the imports are most of what such a command takes: some 300 ms of
processor time, which a forked process saves, a thousand times in a whole run of the tests.
"""

import atexit
import contextlib
import functools
import importlib
import json
import os
import select
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from typing import Never

from ccpipe.cli import main
from ccpipe.process.die_with_parent import die_with_parent
from tests.paths import ROOT

IMPORTED = ("app", "bridge", "publish", "validate", "convert.command", "tail.command", "send")
"""Modules of ccpipe.cli; none that starts threads, as NumPy does."""

AT_START = ("PYTHON", "LC_", "LANG", "LD_", "MALLOC_")
"""Variables that an interpreter reads when it starts: a process cannot change them."""

TIMEOUT = 500.0
MAX_STDIN = 65536
"""Capacity of a pipe in bytes."""


def can_run(stdin: bytes, environ: Mapping[str, str]) -> bool:
    """Return whether a forked process does the same as one of its own."""
    return len(stdin) <= MAX_STDIN and _at_start(environ) == _OURS


def run(words: list[str], stdin: bytes, environ: Mapping[str, str]) -> tuple[int, bytes, bytes]:
    """Run a command; return its exit code, negative if a signal ended it, and what it wrote."""
    request = json.dumps((words, os.getcwd(), dict(environ))).encode()  # noqa: PTH109
    reader, writer = os.pipe()
    with (
        tempfile.TemporaryFile() as out,
        tempfile.TemporaryFile() as err,
        socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection,
    ):
        os.write(writer, stdin)
        os.close(writer)
        connection.settimeout(TIMEOUT)
        with _starting:
            address = _server()
        connection.connect(address)
        socket.send_fds(connection, [request], [reader, out.fileno(), err.fileno()])
        os.close(reader)
        code = int(connection.recv(16))
        out.seek(0)
        err.seek(0)
        return code, out.read(), err.read()


def _at_start(environ: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in environ.items() if key.startswith(AT_START)}


_OURS = _at_start(os.environ)
_starting = threading.Lock()


@functools.cache
def _server() -> str:
    """Start the process; return the address where it listens until this process ends."""
    name = f"ccpipe-tests-{os.getpid()}"
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.cli.forked", name],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"listening\n"
    atexit.register(process.communicate)  # closes its stdin
    return f"\0{name}"


def _serve(name: str) -> None:
    """Fork for each connection, until the standard input ends."""
    for module in IMPORTED:
        importlib.import_module(f"ccpipe.cli.{module}")
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(f"\0{name}")
    listener.listen()
    print("listening", flush=True)
    while listener in select.select([listener, sys.stdin], [], [])[0]:
        connection, _ = listener.accept()
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        if not os.fork():
            listener.close()
            _run_for(connection)
        connection.close()


def _run_for(connection: socket.socket) -> Never:
    """Run a command in a forked process, which may end in any way; report how it ended."""
    die_with_parent()
    request, files, _, _ = socket.recv_fds(connection, 1 << 20, 3)
    child = os.fork()
    if child:
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        connection.send(str(code).encode())
        os._exit(0)
    die_with_parent()
    connection.close()
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    words, directory, environ = json.loads(request)
    os.chdir(directory)
    os.environ.clear()
    os.environ.update(environ)
    time.tzset()
    sys.argv = ["ccpipe", *words]
    main()
    raise AssertionError("unreachable: main() exits")


if __name__ == "__main__":
    _serve(sys.argv[1])
