"""The real command as a separate process, shared by tests of commands."""

import asyncio
import os
import pty
import signal
import subprocess
import sys
import tempfile
import termios
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from ccpipe.process.die_with_parent import die_with_parent
from tests.cli import forked
from tests.paths import ROOT


class Ended(NamedTuple):
    """The exit code and output of a command."""

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
    words, kept = [*map(str, arguments)], environment(**environ)
    if forked.can_run(stdin, kept):
        code, out, err = forked.run(words, stdin, kept)
        return Ended(code, out.decode(), err.decode())
    done = subprocess.run(
        command(*words), input=stdin, capture_output=True, env=kept, timeout=500, check=False
    )
    return Ended(done.returncode, done.stdout.decode(), done.stderr.decode())


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "ccpipe", *map(str, arguments)]


def install(directory: Path, module: str, entry_points: str, code: str) -> None:
    """Install a package of one module in a directory as pip would; entry points are TOML's."""
    info = directory / f"{module}-1.0.dist-info"
    info.mkdir()
    name = module.replace("_", "-")
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    points = entry_points.replace("project.entry-points.", "").replace('"', "")
    (info / "entry_points.txt").write_text(points)
    (directory / f"{module}.py").write_text(code)


def run_installed(directory: Path, *arguments: str) -> str:
    """Run a command in a directory with packages of ``install``; return what it printed."""
    path = os.pathsep.join([str(directory), str(ROOT)])
    done = subprocess.run(
        command(*arguments), cwd=directory, capture_output=True, text=True, timeout=120,
        check=False, env=environment(PYTHONPATH=path, XDG_STATE_HOME=str(directory / "state")),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


async def start(*arguments: object, **environ: str) -> asyncio.subprocess.Process:
    """Start a command; it ends with this process at the latest."""
    environ.setdefault("XDG_STATE_HOME", os.environ["XDG_STATE_HOME"])
    return await asyncio.create_subprocess_exec(
        *command(*arguments), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        preexec_fn=die_with_parent, env=environment(**environ),
    )  # fmt: skip


async def finished(*arguments: object, **environ: str) -> Ended:
    """Run a command to its end without blocking the event loop."""
    environ.setdefault("XDG_STATE_HOME", os.environ["XDG_STATE_HOME"])
    return await asyncio.to_thread(lambda: ccpipe(*arguments, stdin=b"", **environ))


async def ended(process: asyncio.subprocess.Process, number: signal.Signals | None = None) -> Ended:
    """Wait for the end of a process, after a signal if one is given."""
    if number is not None:
        process.send_signal(number)
    out, err = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode is not None
    return Ended(process.returncode, out.decode(), err.decode())


def on_terminal(
    *arguments: object,
    columns: int = 80,
    lines: int = 24,
    until: Callable[[bytes], bool] | None = None,
    **environ: str,
) -> Ended:
    """Run a command with a terminal as its stdout, and a separate stderr.

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
            pass  # Linux reports this when the other side has closed
        finally:
            os.close(ours)
        code = process.wait(500)
        err.seek(0)
        return Ended(code, drawn.decode().replace("\r\n", "\n"), err.read().decode())
