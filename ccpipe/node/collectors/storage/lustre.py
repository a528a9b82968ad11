"""I/O of the node on Lustre file systems: ``/sys/kernel/debug/lustre/llite/*/stats``.

Older versions of Lustre have these files in ``/proc/fs/lustre``; in newer ones only root can read
them. The counters start at mount time; the rates (``_bw``, ``_rate``) and deltas (``_diff``) cover
the time since the last sample and are omitted if a counter decreased. Lustre writes no line for
operations that never happened; they are reported as 0.
"""

import re
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from ccpipe.errors import DataError
from ccpipe.message import Message, metric
from ccpipe.node.linux import proc
from ccpipe.node.sampling.collector import Metric, Previous, SoftErrors, difference_rows, gains

_row = partial(Metric, stype="filesystem")
_COUNTERS = (
    _row("lustre_read_bytes", "bytes", int, "read"),
    _row("lustre_read_requests", "requests", int, "read calls"),
    _row("lustre_write_bytes", "bytes", int, "written"),
    _row("lustre_write_requests", "requests", int, "write calls"),
    _row("lustre_open", "", int, "files opened"),
    _row("lustre_close", "", int, "files closed"),
    _row("lustre_getattr", "", int, "attributes read"),
    _row("lustre_setattr", "", int, "attributes set"),
    _row("lustre_statfs", "", int, "free-space requests (statfs)"),
    _row("lustre_inode_permission", "", int, "permissions checked"),
)
_RATES = {
    "lustre_read_bytes": _row("lustre_read_bw", "bytes/s", float, "read"),
    "lustre_read_requests": _row("lustre_read_requests_rate", "requests/s", float, "read calls"),
    "lustre_write_bytes": _row("lustre_write_bw", "bytes/s", float, "written"),
    "lustre_write_requests": _row("lustre_write_requests_rate", "requests/s", float, "write calls"),
}

METRICS = (*_COUNTERS, *_RATES.values(), *difference_rows(_COUNTERS))

_DIRECTORIES = ("sys/kernel/debug/lustre/llite", "proc/fs/lustre/llite")
_PLACES = (  # key and column of each counter: how often, and how much
    ("read_bytes", 1), ("read_bytes", 0), ("write_bytes", 1), ("write_bytes", 0), ("open", 0),
    ("close", 0), ("getattr", 0), ("setattr", 0), ("statfs", 0), ("inode_permission", 0),
)  # fmt: skip
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
        self._previous = Previous[dict[str, int]]()
        self.soft = SoftErrors("lustre")

    def collect(self, time: int) -> Iterator[Message]:
        mounts, now = self._read()
        before, seconds = self._previous.swap(now)
        names = list(map(_name, mounts))
        for mount, counters in now.items():
            name = mount if names.count(_name(mount)) > 1 else _name(mount)
            tags = {"type": "node", "stype": "filesystem", "stype-id": proc.tag(name)}
            for counter, value in counters.items():
                yield metric(counter, value, time=time, tags=tags)
            gained = gains(before.get(mount, {}), counters)
            for counter, rate in _RATES.items():
                if counter in gained and seconds > 0:
                    yield metric(rate.name, gained[counter] / seconds, time=time, tags=tags)
            for counter, gain in gained.items():
                yield metric(f"{counter}_diff", gain, time=time, tags=tags)

    def _read(self) -> tuple[list[str], dict[str, dict[str, int]]]:
        new, old = (self._root / directory for directory in _DIRECTORIES)
        directory = old if old.is_dir() else new
        found: dict[str, dict[str, int]] = {}
        mounts = proc.names(directory)
        for mount in mounts:
            if not proc.matches(_name(mount), self._exclude):
                with self.soft.noted():
                    found[mount] = self._counters(directory / mount / "stats")
        self.soft.report(found)
        return mounts, found

    def _counters(self, path: Path) -> dict[str, int]:
        samples: dict[str, tuple[int, int] | None] = {}
        for place, line in proc.lines(path):
            if found := _LINE.fullmatch(line):
                samples[found[1]] = int(found[2]), int(found[3] or 0)
            elif " samples " in line:
                samples[line.split()[0]] = None  # not 0
                self.soft.add([DataError(f"{place}: {line!r:.60} is not a counter")])
            else:
                samples.setdefault(line.split()[0], None)
        if "snapshot_time" not in samples:
            raise DataError(f"{path}: snapshot_time is missing")
        values: dict[str, int] = {}
        for row, (key, column) in zip(_COUNTERS, _PLACES, strict=True):
            if (counted := samples.get(key, (0, 0))) is not None:
                values[row.name] = counted[column]
        return values


def _name(mount: str) -> str:
    return mount.rpartition("-")[0] or mount
