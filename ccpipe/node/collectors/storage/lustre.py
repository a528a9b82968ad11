"""I/O of the node on Lustre file systems: ``/sys/kernel/debug/lustre/llite/*/stats``.

Older versions of Lustre have these files in ``/proc/fs/lustre``; in newer ones only root can read
them. The counters start at mount time; the rates (``_bw``, ``_rate``) and deltas (``_diff``) cover
the time since the last sample and are omitted if a counter decreased. Lustre writes no line for
operations that never happened; they are reported as 0.
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from ccpipe.errors import DataError
from ccpipe.message import Message
from ccpipe.node.linux import proc
from ccpipe.node.sampling.metrics import Metric
from ccpipe.node.sampling.rates import Previous, emit, rates

_NODE = ("node",)
_COUNTERS = (
    Metric("lustre_read_bytes", "bytes", int, "read", _NODE, "filesystem"),
    Metric("lustre_read_requests", "requests", int, "read calls", _NODE, "filesystem"),
    Metric("lustre_write_bytes", "bytes", int, "written", _NODE, "filesystem"),
    Metric("lustre_write_requests", "requests", int, "write calls", _NODE, "filesystem"),
    Metric("lustre_open", "", int, "files opened", _NODE, "filesystem"),
    Metric("lustre_close", "", int, "files closed", _NODE, "filesystem"),
    Metric("lustre_getattr", "", int, "attributes asked for", _NODE, "filesystem"),
    Metric("lustre_setattr", "", int, "attributes set", _NODE, "filesystem"),
    Metric("lustre_statfs", "", int, "free-space requests (statfs)", _NODE, "filesystem"),
    Metric("lustre_inode_permission", "", int, "permissions checked", _NODE, "filesystem"),
)
_RATES = (  # in the order of the counters that they are of
    Metric("lustre_read_bw", "bytes/s", float, "read", _NODE, "filesystem"),
    Metric("lustre_read_requests_rate", "requests/s", float, "of read", _NODE, "filesystem"),
    Metric("lustre_write_bw", "bytes/s", float, "written", _NODE, "filesystem"),
    Metric("lustre_write_requests_rate", "requests/s", float, "of write", _NODE, "filesystem"),
)

_SINCE = tuple(
    row._replace(name=f"{row.name}_diff", meaning=f"{row.meaning}, since the last sample")
    for row in _COUNTERS
)

METRICS = (*_COUNTERS, *_RATES, *_SINCE)

_FOLDERS = ("sys/kernel/debug/lustre/llite", "proc/fs/lustre/llite")
_COUNTED = ("open", "close", "getattr", "setattr", "statfs", "inode_permission")
# read_bytes                5 samples [bytes] 4096 1048576 3149824
_LINE = re.compile(r"(\w+)\s+(\d{1,18}) samples \[\w+\](?: \d+ \d+ (\d{1,18})(?: \d+)?)?\s*")


class Lustre:
    """The Lustre file systems of the node; the first sample has no rates.

    One that is mounted once is named, for example, ``scratch``; of several mounts each has the name
    that Lustre gives it, such as ``scratch-ffff8f3a2c8e7000``.

    Parameters
    ----------
    exclude
        File systems to exclude, as shell patterns.
    root
        Root of the file system to read; set it to read a captured tree.

    """

    def __init__(self, *, exclude: Sequence[str] = (), root: str = "/") -> None:
        self._exclude = exclude
        self._root = Path(root)
        self._previous = Previous[list[int]]()

    def collect(self, time: int) -> Iterator[Message]:
        """Yield counters, and rates since the last call.

        Raises
        ------
        OSError, DataError
            if nothing is mounted, we may not read it, or it is not what Lustre writes.

        """
        now = self._read()
        before, seconds = self._previous.swap(now)
        names = [_name(mount) for mount in now]
        for mount, counters in now.items():
            name = mount if names.count(_name(mount)) > 1 else _name(mount)
            tags = {"type": "node", "stype": "filesystem", "stype-id": proc.tag(name)}
            yield from emit(_COUNTERS, counters, time, tags)
            yield from emit(_RATES, rates(before.get(mount), counters, seconds), time, tags)
            gains = proc.gained(before.get(mount), counters) or []
            yield from emit(_SINCE, gains, time, tags)

    def _read(self) -> dict[str, list[int]]:
        """Return each mount's counters, in the order of the table."""
        new, old = (self._root / folder for folder in _FOLDERS)
        folder = old if old.is_dir() else new
        return {
            mount: _counters(folder / mount / "stats")
            for mount in proc.names(folder)
            if not proc.matches(_name(mount), self._exclude)
        }


def _counters(path: Path) -> list[int]:
    samples: dict[str, tuple[int, int]] = {}
    for place, line in proc.lines(path):
        if found := _LINE.fullmatch(line):
            samples[found[1]] = int(found[2]), int(found[3] or 0)
        elif " samples " in line:
            raise DataError(f"{place}: {line!r:.60} is not a counter")
    nothing = (0, 0)
    reads, read = samples.get("read_bytes", nothing)
    writes, written = samples.get("write_bytes", nothing)
    return [read, reads, written, writes, *(samples.get(key, nothing)[0] for key in _COUNTED)]


def _name(mount: str) -> str:
    return mount.rpartition("-")[0] or mount
