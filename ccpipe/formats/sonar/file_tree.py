"""Jobanalyzer's directory tree of envelopes: the files' names, from envelopes and back.

::

    <root>/<cluster>/2025/04/07/0+sample-gpu-1.fox.json
    <root>/<cluster>/2025/04/07/0+job-slurm.json

The day is that of the envelope's time in UTC. ``0`` is the version of the format. Files of type
``cluster`` are spelt ``cluzter``. Each file holds envelopes one after the other.

Source: Sonar's ``src/datasink``; Jobanalyzer's ``code/sonalyze/db``.
"""

import re
from collections.abc import Iterator
from datetime import date
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from ccpipe.errors import DataError, EncodeError
from ccpipe.formats.sonar.types import timestamp
from ccpipe.formats.sonar.types.envelope import Envelope

SPELLINGS = {"sample": "sample", "sysinfo": "sysinfo", "job": "job", "cluster": "cluzter"}
"""How file names spell each type."""
MASTER = "slurm"
"""Stands for the node in the names of what is about a whole cluster."""
MAX_NAME = 255
"""Bytes of a file's name, on all usual file systems."""

_FILE = re.compile(rf"0\+(?:{'|'.join(SPELLINGS.values())})-.+\.json", re.DOTALL)


class TreeFile(NamedTuple):
    """A file of the tree."""

    path: Path
    day: date

    @property
    def key(self) -> str:
        *_, cluster, _year, _month, _day, name = self.path.parts
        return f"{self.day}/{cluster}/{name}"


def path_of(envelope: Envelope, *, cluster_directories: bool = True) -> PurePosixPath:
    """Return the path below the root of the file that an envelope belongs into.

    Raises EncodeError for an envelope of errors, which has no type and so no file; and where its
    time, cluster or node cannot be part of a path.
    """
    data = envelope.data
    if data is None:
        raise EncodeError("an envelope of errors has no file in the tree: it is of no type")
    attributes = data.attributes
    try:
        at = timestamp.parse(attributes.time)
    except DataError as error:
        raise EncodeError(f"time: {error}") from None
    if at is None:
        raise EncodeError("time: an envelope without one has no day")
    day = PurePosixPath(*timestamp.write(at)[:10].split("-"))
    node = getattr(attributes, "node", MASTER)
    name = _checked("node", f"0+{SPELLINGS[data.type]}-{node}.json", node)
    if not cluster_directories:
        return day / name
    return _checked("cluster", attributes.cluster, attributes.cluster) / day / name


def _checked(field: str, name: str, value: str) -> PurePosixPath:
    """Return a name as a path of one part: no envelope may choose another directory."""
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        size = MAX_NAME + 1
    if not value or name in (".", "..") or "/" in name or size > MAX_NAME or not name.isprintable():
        raise EncodeError(f"{field}: {value!r:.60} cannot be part of a file's name")
    return PurePosixPath(name)


def list_days(root: Path, *, cluster_directories: bool = True) -> list[date]:
    clusters = [root]
    if cluster_directories:
        clusters = [path for path in root.iterdir() if path.is_dir()]
    found = {day for cluster in clusters for day in _days(cluster)}
    return sorted(found)


def _days(cluster: Path) -> Iterator[date]:
    for directory in cluster.glob("[0-9][0-9][0-9][0-9]/[0-9][0-9]/[0-9][0-9]"):
        try:
            yield date(*map(int, directory.parts[-3:]))
        except ValueError:
            continue  # no day of the calendar


def list_files(root: Path, day: date, *, cluster_directories: bool = True) -> list[TreeFile]:
    """Return the files of a day with envelopes, in order; others are left out."""
    directory = f"{day:%Y/%m/%d}"
    paths = root.glob(f"*/{directory}/*" if cluster_directories else f"{directory}/*")
    return sorted(TreeFile(path, day) for path in paths if _FILE.fullmatch(path.name))
