"""Durable folders: until a folder is synced, a crash can remove a new name from it."""

import os
from pathlib import Path

from ccpipe.errors import ConfigError, DeniedError


def check_folder(folder: Path) -> None:
    """Check whether a folder can be written to, or created; change nothing.

    Raises
    ------
    ConfigError
        if a path component is not a folder.
    DeniedError
        if permissions are missing.

    """
    existing = next(path for path in (folder, *folder.absolute().parents) if _exists(path))
    if not existing.is_dir():
        raise ConfigError(f"{existing} is not a folder")
    if not os.access(existing, os.W_OK | os.X_OK, effective_ids=True):
        raise DeniedError(f"{existing}: no write permission")


def _exists(path: Path) -> bool:
    return os.access(path, os.F_OK, effective_ids=True)


def make_folder(folder: Path) -> None:
    """Create a folder and its missing parents, durably; raises OSError."""
    if not folder.is_dir():
        make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
        sync_folder(folder.parent)


def sync_folder(folder: Path) -> None:
    """Sync the entries of a folder to disk; raises OSError."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
