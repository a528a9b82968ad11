"""Files that are replaced atomically: a reader finds the old content or the new one."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def replacing(path: Path, mode: int = 0o666) -> Iterator[Path]:
    """Yield an empty new file, which becomes `path` unless the block ends with an error."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.unlink(missing_ok=True)
    os.close(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode))
    try:
        yield draft
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def replace_content(path: Path, content: bytes, mode: int = 0o666) -> None:
    """Replace the content of a file atomically, synced to disk; raises OSError."""
    with replacing(path, mode) as draft, draft.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def write_private(path: Path, text: str) -> None:
    """Replace a file that only its owner can read; raises OSError."""
    replace_content(path, text.encode(), 0o600)
