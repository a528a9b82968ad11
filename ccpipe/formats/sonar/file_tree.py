"""Jobanalyzer's directory tree of envelopes: paths from envelopes, and envelope files by day.

::

    <root>/<cluster>/2025/04/07/0+sample-gpu-1.fox.json
    <root>/<cluster>/2025/04/07/0+job-slurm.json

The day is the UTC date of the envelope's time. ``0`` is the version of the format. The type
``cluster`` is spelt ``cluzter``. Each file has concatenated envelopes.

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
"""Spelling of each type in file names."""
MASTER = "slurm"
"""Replaces the node in file names of data about a whole cluster."""
MAX_NAME = 255
"""Maximum bytes of a file name on all usual file systems."""

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
    """Return the path, relative to the root, of the file for an envelope.

    Raises EncodeError for an envelope of errors, which has no type and thus no file, and if its
    time, cluster or node is not valid in a path.
    """
    data = envelope.data
    if data is None:
        raise EncodeError("an envelope of errors has no type and thus no file in the tree")
    attributes = data.attributes
    try:
        at = timestamp.parse(attributes.time)
    except DataError as error:
        raise EncodeError(f"time: {error}") from None
    if at is None:
        raise EncodeError("time: missing, so the day is unknown")
    day = PurePosixPath(*timestamp.write(at)[:10].split("-"))
    node = getattr(attributes, "node", MASTER)
    name = _checked("node", f"0+{SPELLINGS[data.type]}-{node}.json", node)
    if not cluster_directories:
        return day / name
    return _checked("cluster", attributes.cluster, attributes.cluster) / day / name


def _checked(field: str, name: str, value: str) -> PurePosixPath:
    """Return a name as a path of one part, so that envelopes cannot escape their directory."""
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        size = MAX_NAME + 1
    if not value or name in (".", "..") or "/" in name or size > MAX_NAME or not name.isprintable():
        raise EncodeError(f"{field}: {value!r:.60} is not valid in a file name")
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
            continue  # not a calendar date


def list_files(root: Path, day: date, *, cluster_directories: bool = True) -> list[TreeFile]:
    """Return the envelope files of a day, in order; other files are ignored."""
    directory = f"{day:%Y/%m/%d}"
    paths = root.glob(f"*/{directory}/*" if cluster_directories else f"{directory}/*")
    return sorted(TreeFile(path, day) for path in paths if _FILE.fullmatch(path.name))
