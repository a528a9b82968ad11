"""Processes of tasks, in a directory."""

from pathlib import Path

import pytest

from ccpipe.node.gather.jobacct.task_usage import ProcessTree


class Table:
    """A ``/proc`` in a directory."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def put(self, pid: int, ppid: int, *, start: int = 10, **values: int) -> None:
        directory = self.root / f"proc/{pid}"
        directory.mkdir(parents=True, exist_ok=True)
        own, reaped, rss = (values.get(name, 0) for name in ("own", "reaped", "rss"))
        (directory / "stat").write_text(
            f"{pid} (a) b) R {ppid} {pid} {pid} 0 -1 0 0 0 {values.get('faults', 0)} 0 {own} 0"
            f" {reaped} 0 20 0 1 0 {start} 4096 {rss} " + " ".join(["0"] * 15) + "\n"
        )
        if "read" in values:
            (directory / "io").write_text(f"rchar: {values['read']}\nwchar: {values['read']}\n")

    def drop(self, pid: int) -> None:
        for path in (self.root / f"proc/{pid}").iterdir():
            path.unlink()
        (self.root / f"proc/{pid}").rmdir()

    def tree(self) -> ProcessTree:
        return ProcessTree(root=str(self.root))


@pytest.fixture
def table(tmp_path: Path) -> Table:
    (tmp_path / "proc").mkdir()
    return Table(tmp_path)
