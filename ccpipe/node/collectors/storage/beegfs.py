"""Counters of `beegfs-ctl --clientstats`, for `beegfs_meta` and `beegfs_storage`."""

import re
from collections.abc import Iterator, Sequence
from functools import partial

from ccpipe.config import Duration
from ccpipe.errors import DataError
from ccpipe.message import Message, metric
from ccpipe.node.linux import proc
from ccpipe.node.linux.proc import mounts
from ccpipe.node.sampling.collector import Metric, SoftErrors
from ccpipe.process.child import run

_KIND = "beegfs"
_OTHER = "other"
_COUNT = re.compile(r"(\d{1,18}(?:\.\d{1,9})?)\s+\[([^\]\s]{1,40})\]", re.ASCII)


def rows(prefix: str, operations: str) -> tuple[Metric, ...]:
    """Return the table of all operations and each, which are named as BeeGFS names them."""
    row = partial(Metric, unit="", kind=float, stype="filesystem")
    family = f"{prefix}_<operation>"
    return (
        row(f"{prefix}_sum", meaning="all operations"),
        *(
            row(f"{prefix}_{name}", meaning="operations of this name", family=family)
            for name in operations.split()
        ),
        row(f"{prefix}_{_OTHER}", meaning="operations not reported individually"),
    )


class ClientStats:
    """The servers of one kind of each BeeGFS that is mounted."""

    kind: str  # ``meta`` or ``storage``
    table: Sequence[Metric]

    def __init__(
        self,
        *,
        command: Sequence[str] = ("beegfs-ctl",),
        exclude: Sequence[str] = (),
        exclude_operations: Sequence[str] = (),
        timeout: Duration = Duration(5),
        root: str = "/",
    ) -> None:
        """Choose the program and what to leave out.

        Parameters
        ----------
        command
            The program, optionally preceded by another one such as `sudo`.
        exclude
            Mount points to exclude, as shell patterns.
        exclude_operations
            Operations counted only in `other`, as shell patterns.
        timeout
            Time limit for the program per file system.
        root
            Root of the file system whose mounts are listed; set it to read a captured tree.

        """
        self._prefix = self.table[-1].name.removesuffix(_OTHER)
        names = (row.name.removeprefix(self._prefix) for row in self.table[:-1])
        self._operations = [name for name in names if not proc.matches(name, exclude_operations)]
        self._command = command
        self._exclude = exclude
        self._timeout = float(timeout)
        self._root = root
        self.soft = SoftErrors(f"beegfs_{self.kind}")

    def collect(self, time: int) -> Iterator[Message]:
        points = [
            mount.point
            for mount in mounts(self._root)
            if mount.kind == _KIND and not proc.matches(mount.point, self._exclude)
        ]
        if not points:
            raise FileNotFoundError(2, "no BeeGFS is mounted")
        for point in points:
            try:
                counts = self._read(point)
            except (OSError, DataError) as error:
                self.soft.note(f"{point}: {error}")
                continue
            tags = {"type": "node", "stype": "filesystem", "stype-id": proc.tag(point)}
            for name in self._operations:
                value = counts.pop(name, 0.0)
                yield metric(f"{self._prefix}{name}", value, time=time, tags=tags)
            rest = float(sum(counts.values()))
            yield metric(f"{self._prefix}{_OTHER}", rest, time=time, tags=tags)

    def _read(self, point: str) -> dict[str, float]:
        options = ("--clientstats", f"--nodetype={self.kind}", f"--mount={point}", "--allstats")
        printed = run([*self._command, *options], timeout=self._timeout, given=b"\n")
        for line in printed.decode("utf-8", "replace").splitlines():
            # Sum:      120 [sum]     40 [open]     80 [stat]
            if line.startswith("Sum:"):
                if _COUNT.sub("", line).strip() != "Sum:":  # no operation may seem to be 0
                    raise DataError(f"beegfs-ctl: {line!r:.80} are not counters")
                return {found[2]: float(found[1]) for found in _COUNT.finditer(line)}
        raise DataError("beegfs-ctl printed no line 'Sum:'")
