"""Entry points: what installed packages offer by name, read from their own lists.

``importlib.metadata`` finds the same, which a test holds, but imports what reads archives and mail:
2 MB of a publisher's 34. Specification: packaging.python.org, *Entry points specification*.
"""

import importlib
import sys
from collections.abc import Iterator
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

LISTS = ("*.dist-info/entry_points.txt", "*.egg-info/entry_points.txt")


class EntryPoint(NamedTuple):
    """A class that a package offers by name."""

    name: str
    value: str
    """``module:class``."""
    folder: Path
    """That of the package's metadata."""

    @property
    def module(self) -> str:
        """The name of the module."""
        return self.value.partition(":")[0].strip()

    def load(self) -> Any:
        """Import the class; raises whatever its module raises, and AttributeError."""
        path = self.value.partition(":")[2].partition("[")[0].strip()
        return attrgetter(path)(importlib.import_module(self.module))


def entry_points(group: str) -> dict[str, EntryPoint]:
    """Return the entry points of a group ``ccpipe.…``, by name and in its order."""
    found = {
        name: EntryPoint(name, value, path.parent)
        for path in _lists()
        for name, value in _read(path, f"ccpipe.{group}")
    }
    return dict(sorted(found.items()))


def _lists() -> Iterator[Path]:
    """Yield the list of each package; of two with one name that one which would be imported."""
    seen = set()
    for folder in map(Path, sys.path):
        for path in (path for pattern in LISTS for path in folder.glob(pattern)):
            package = path.parent.stem.partition("-")[0].lower().replace(".", "_")
            if package not in seen:
                seen.add(package)
                yield path


def _read(path: Path, group: str) -> Iterator[tuple[str, str]]:
    """Yield the names and values of one section of a list."""
    section = ""
    for line in map(str.strip, path.read_text(encoding="utf-8").splitlines()):
        if line.startswith("["):
            section = line.strip("[]")
        elif section == group and "=" in line and not line.startswith(("#", ";")):
            name, _, value = line.partition("=")
            yield name.strip(), value.strip()
