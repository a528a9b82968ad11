"""A file that gets its name when it is complete and on disk, from one process at a time."""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from ccpipe.errors import UnavailableError


@contextlib.contextmanager
def exclusive_draft(target: Path) -> Iterator[Path]:
    """Return where to write; nobody else writes there until it is published or given up."""
    draft = target.with_name(f".{target.name}.merging")
    while True:
        fd = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            raise UnavailableError(f"{target}: another process is merging into it") from None
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(fd), draft.stat()):
                break
        os.close(fd)  # the other process has just published what we opened
    try:
        yield draft
    finally:
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(fd), draft.stat()):
                draft.unlink()
        os.close(fd)


def rename_complete(draft: Path, target: Path) -> None:
    """Give a complete file its name, after everything is on disk."""
    _sync(draft)
    draft.rename(target)
    _sync(target.parent)


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
