"""Control groups of jobs and tasks, in a directory."""

import re
from pathlib import Path

from tests.paths import TEST_DATA

RECORDED = TEST_DATA / "gather" / "cgroup_v1.txt"


def put(root: Path, directory: str, *pids: int) -> None:
    path = root / "sys/fs/cgroup" / directory
    path.mkdir(parents=True, exist_ok=True)
    (path / "cgroup.procs").write_text("".join(f"{pid}\n" for pid in pids))


def unpack_snapshot(root: Path) -> None:
    for part in re.split(r"^## ", RECORDED.read_text(), flags=re.MULTILINE)[1:]:
        name, _, content = part.partition("\n")
        path = root / name.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
