"""The real command as a process of its own: what tests of commands share."""

import os
import pty
import subprocess
import sys
import tempfile
import termios
from collections.abc import Callable
from typing import NamedTuple


class Ended(NamedTuple):
    """How a command ended and what it said."""

    code: int
    out: str
    err: str


def environment(**environ: str) -> dict[str, str]:
    """Return our environment without the configuration that this machine may have."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("CCPIPE_")}
    for name in ("COLUMNS", "LINES", "NO_COLOR"):
        kept.pop(name, None)
    homes = {"XDG_CONFIG_HOME": "/proc/nonexistent", "XDG_STATE_HOME": "/proc/nonexistent"}
    return {**kept, **homes, "TERM": "xterm", "TZ": "UTC", **environ}


def ccpipe(*arguments: object, stdin: bytes = b"", **environ: str) -> Ended:
    done = subprocess.run(
        command(*arguments),
        input=stdin,
        capture_output=True,
        env=environment(**environ),
        timeout=500,
        check=False,
    )
    return Ended(done.returncode, done.stdout.decode(), done.stderr.decode())


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "ccpipe", *map(str, arguments)]


def on_terminal(
    *arguments: object,
    columns: int = 80,
    lines: int = 24,
    until: Callable[[bytes], bool] | None = None,
    **environ: str,
) -> Ended:
    """Run a command with a terminal as its stdout, and stderr beside it.

    It runs to its end, or `until` it has drawn enough: then SIGTERM ends it.
    """
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (lines, columns))
    with (
        tempfile.TemporaryFile() as err,
        subprocess.Popen(
            command(*arguments),
            stdin=subprocess.DEVNULL,
            stdout=theirs,
            stderr=err,
            env=environment(**environ),
        ) as process,
    ):
        os.close(theirs)
        drawn = b""
        try:
            while piece := os.read(ours, 65536):
                drawn += piece
                if until is not None and until(drawn):
                    until = None
                    process.terminate()
        except OSError:
            pass  # this is how Linux says that the other side has closed
        finally:
            os.close(ours)
        code = process.wait(500)
        err.seek(0)
        return Ended(code, drawn.decode().replace("\r\n", "\n"), err.read().decode())
