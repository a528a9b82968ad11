"""Controls: settings of a node, read and set over the bus by ``node/agent/responder.py``."""

import contextlib
import errno
import math
import os
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from ccpipe.errors import DataError, UsageError
from ccpipe.node.linux import proc

Tags = Mapping[str, str]
"""Tags of a request that name the device: ``type`` and ``type-id``."""


class ControlChange(NamedTuple):
    """The value before and after a PUT."""

    before: str
    after: str


@dataclass(frozen=True, slots=True)
class Control:
    """One setting that can be read and, perhaps, set.

    Both functions run in a thread and may block for a short time. They raise UsageError for an
    unknown device, DataError for an invalid value, and OSError if the kernel refuses.
    """

    about: str  # description with unit, for the list of controls
    get: Callable[[Tags], str]  # returns a text: one value, or JSON for several
    put: Callable[[str, Tags], ControlChange | Awaitable[ControlChange]] | None = None
    """Sets a value. An ``async def`` is awaited in the loop instead of run in a thread."""
    device: str = "node"


def device(tags: Tags, kind: str, known: Mapping[str, object]) -> str | None:
    """Return the id of the requested device; None for the whole node; raises UsageError."""
    requested, name = tags.get("type") or "node", tags.get("type-id", "")
    if requested == "node":
        return None
    if not known:
        raise UsageError(f"tag type is {requested:.40}; it must be node")
    if requested != kind:
        raise UsageError(f"tag type is {requested:.40}; it must be {kind}, or node for all of them")
    if name not in known:
        raise UsageError(
            f"no {kind} {name!r:.40} on this node (expected one of {', '.join(known)})"
        )
    return name


def quantity(text: str, units: Mapping[str, float]) -> float:
    """Parse a number with or without one of `units`, and multiply; raises DataError."""
    found = _QUANTITY.fullmatch(text.strip())
    if found is None or found[2] not in units:
        wanted = ", ".join(filter(None, units))
        raise DataError(f"{text!r:.40}: expected a number, optionally with a unit ({wanted})")
    return float(found[1]) * units[found[2]]


_QUANTITY = re.compile(r"(\d{1,15}(?:\.\d{0,15})?)\s*([A-Za-z]*)", re.ASCII)


def reading(path: Path) -> int:
    return proc.counters(str(path), [proc.text(path).strip()], minimum=1)[0]


def set_files(wanted: Mapping[Path, str], tolerance: float = 0) -> None:
    """Write files of ``/sys`` and read each one back; after an error, restore all of them.

    A kernel may keep another value without an error, e.g. if the firmware has locked a limit.
    Numbers may differ by `tolerance`, as hardware has coarse steps.
    """
    before: dict[Path, str] = {}
    try:
        for path, text in wanted.items():
            before[path] = proc.text(path).strip()
            if before[path] != text:
                _write(path, text)
            kept = proc.text(path).strip()
            if not _is_kept(text, kept, tolerance):
                raise OSError(errno.EIO, f"the kernel keeps {kept!r:.40}, not {text}", str(path))
    except OSError:
        for path, text in before.items():
            with contextlib.suppress(OSError):
                _write(path, text)
        raise


def _write(path: Path, text: str) -> None:
    """Write an existing file with a single call, as the kernel requires."""
    file = os.open(path, os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC)
    try:
        os.write(file, text.encode())
    except OSError as error:
        error.filename = str(path)  # an error of write() names no file
        raise
    finally:
        os.close(file)


def _is_kept(wanted: str, kept: str, tolerance: float) -> bool:
    if wanted == kept:
        return True
    try:
        return math.isclose(float(wanted), float(kept), rel_tol=0, abs_tol=tolerance)
    except ValueError:
        return False


def formatted(value: float) -> str:
    """Format a number, whole ones without a point."""
    return f"{value:.15g}"


def joined(values: Mapping[str, str]) -> str:
    """Format the values of several devices: a single one if they are all the same."""
    if len(set(values.values())) == 1:
        return next(iter(values.values()))
    return ", ".join(f"{name}: {value}" for name, value in values.items())
