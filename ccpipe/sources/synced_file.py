"""Small files that a crash leaves whole: the old content or the new one."""

import os
from pathlib import Path


def replace_content(path: Path, content: bytes) -> None:
    """Replace what a file holds, synced to the disk before it has the name; raises OSError."""
    draft = path.with_name(f".{path.name}.tmp")
    with draft.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
