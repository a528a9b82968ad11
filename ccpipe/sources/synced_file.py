"""Small files that survive a crash: with the old content or the new one."""

import os
from pathlib import Path


def replace_content(path: Path, content: bytes) -> None:
    """Replace the content of a file atomically, synced to disk; raises OSError."""
    draft = path.with_name(f".{path.name}.tmp")
    with draft.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
