"""Folders and names that a crash does not undo: until a folder is synced, a new name can vanish."""

import os
from pathlib import Path

from ccpipe.errors import ConfigError, DeniedError


def check_folder(folder: Path) -> None:
    """Say whether we could write to a folder, or make it; nothing is touched.

    Raises
    ------
    ConfigError
        where something that is no folder stands in the way.
    DeniedError
        where we may not.

    """
    there = next(path for path in (folder, *folder.absolute().parents) if _is_there(path))
    if not there.is_dir():
        raise ConfigError(f"{there} is not a folder")
    if not os.access(there, os.W_OK | os.X_OK, effective_ids=True):
        raise DeniedError(f"{there}: we may not write there")


def _is_there(path: Path) -> bool:
    return os.access(path, os.F_OK, effective_ids=True)


def make_folder(folder: Path) -> None:
    """Make a folder and those above it that are missing, safe on the disk; raises OSError."""
    if not folder.is_dir():
        make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
        sync_folder(folder.parent)


def sync_folder(folder: Path) -> None:
    """Bring a folder's list of names to the disk; raises OSError."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
