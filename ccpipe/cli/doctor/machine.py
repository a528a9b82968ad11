"""What ``ccpipe doctor`` finds on this machine: software, files, disks, systemd units."""

import os
import platform
import time
from collections.abc import Iterator
from pathlib import Path

from ccpipe import __version__
from ccpipe.cli.check import Finding, Status
from ccpipe.cli.version import installed, kernel, requirements
from ccpipe.config import Site, state_directory
from ccpipe.node.agent.spool import DAMAGED, spool_files
from ccpipe.process.child import run
from ccpipe.terminal import format_duration, in_bytes, listed, plural

UNIT_SECONDS = 5.0
FREE_WARNING, FREE_CRITICAL = 5 * 2**30, 2**29
"""Free bytes of a file system below which it is a warning, or critical."""
SPOOL_SECONDS = 60.0
"""Age of a spooled message from which the broker was not merely restarted."""
SERVICE_STATE = Path("/var/lib/ccpipe")
"""The state directory of the shipped units."""


def software() -> Iterator[Finding]:
    """Yield the versions, and what makes ccpipe slower or is not installed."""
    versions = f"{__version__}, Python {platform.python_version()}, {platform.platform()}"
    yield Finding("ccpipe", Status.OK, versions)
    found = kernel()
    if "python" in found:
        text = "the reference in Python, which is many times slower: no compiler at installation"
        yield Finding("kernel", Status.WARNING, text)
    else:
        yield Finding("kernel", Status.OK, found)
    missing = sorted({extra for name, extra in requirements() if not installed(name)})
    if missing:
        text = f"not installed: {', '.join(missing)} (pip install 'ccpipe[{missing[0]}]')"
        yield Finding("extras", Status.OK, text)


def state_directories() -> list[Path]:
    """Return the existing directories with persistent data: ours, and that of the units."""
    own = [state_directory(), SERVICE_STATE]
    return [path for path in dict.fromkeys(own) if path.is_dir()]


def spools(site: Site) -> Iterator[Finding]:
    """Yield how much waits in the spools for the broker."""
    options = site.publish.spool
    chosen = [Path(options.dir)] if options.dir else []
    for path in chosen or [each / "spool" for each in state_directories()]:
        try:
            files = list(spool_files(path))
            oldest = min(((path / file.name).stat().st_mtime for file in files), default=None)
        except FileNotFoundError:
            continue  # no publisher has run, or it emptied its spool just now
        except OSError as error:
            yield Finding("spool", Status.UNKNOWN, f"{path}: {error.strerror}")
            continue
        if (path / DAMAGED).exists():
            yield Finding("spool", Status.WARNING, f"{path / DAMAGED} was kept for inspection")
        if oldest is None:
            yield Finding("spool", Status.OK, f"{path} is empty")
            continue
        age = max(0.0, time.time() - oldest)
        messages, size = sum(len(file.left) for file in files), sum(file.size for file in files)
        text = (
            f"{path}: {plural(messages, 'message')}, {in_bytes(size)} of "
            f"{in_bytes(int(options.max_size))}, waiting for {format_duration(age)}"
        )
        yield Finding("spool", Status.WARNING if age > SPOOL_SECONDS else Status.OK, text)


def disks(paths: list[Path]) -> Iterator[Finding]:
    """Yield the free space below some directories, once for each file system."""
    seen: set[int] = set()
    for path in paths:
        try:
            where = next(each for each in (path, *path.absolute().parents) if each.exists())
            device, free = where.stat().st_dev, os.statvfs(where)
        except OSError as error:
            yield Finding("disk", Status.UNKNOWN, f"{path}: {error.strerror}")
            continue
        if device in seen:
            continue
        seen.add(device)
        left = free.f_bavail * free.f_frsize
        status = Status.CRITICAL if left < FREE_CRITICAL else Status.WARNING
        status = Status.OK if left >= FREE_WARNING else status
        text = f"{where}: {in_bytes(left)} free of {in_bytes(free.f_blocks * free.f_frsize)}"
        yield Finding("disk", status, text, left, "B")


def units() -> Iterator[Finding]:
    """Yield the state of the systemd units whose names begin with ``ccpipe``."""
    if not Path("/run/systemd/system").is_dir():
        return
    words = ["systemctl", "list-units", "--all", "--plain", "--no-legend", "--no-pager", "ccpipe*"]
    try:
        printed = run(words, timeout=UNIT_SECONDS).decode(errors="replace")
    except OSError as error:
        yield Finding("units", Status.UNKNOWN, f"systemctl: {error}")
        return
    yield from units_of(printed)


def units_of(printed: str) -> Iterator[Finding]:
    """Yield the findings of the output of ``systemctl list-units --plain --no-legend``."""
    rows = [line.split(maxsplit=4) for line in printed.splitlines()]
    rows = [row for row in rows if len(row) >= 4]  # noqa: PLR2004 - unit, load, active, sub
    running = [unit for unit, _, active, *_ in rows if active == "active"]
    if running:
        yield Finding("units", Status.OK, f"running: {listed(running, 8)}")
    for unit, _, active, state, *_ in rows:
        if active != "active":
            failed = active == "failed" or state == "auto-restart"
            status = Status.CRITICAL if failed else Status.WARNING
            text = f"{unit} is {active} ({state}): `journalctl -u {unit}`"
            yield Finding("units", status, text)
