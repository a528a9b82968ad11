"""What `beegfs-ctl --clientstats` counts on BeeGFS, for `beegfs_meta` and `beegfs_storage`."""

import re
from collections.abc import Iterator, Sequence

from ccpipe.errors import DataError
from ccpipe.message import Message, metric
from ccpipe.node.linux import proc
from ccpipe.node.linux.mounts import mounts
from ccpipe.node.sampling.metrics import Metric
from ccpipe.node.sampling.soft_errors import SoftErrors
from ccpipe.process.child import run

_KIND = "beegfs"
_OTHER = "other"
_COUNT = re.compile(r"(\d{1,18}(?:\.\d{1,9})?)\s+\[([^\]\s]{1,40})\]", re.ASCII)


def rows(prefix: str, operations: str) -> tuple[Metric, ...]:
    """Return the table of operations, which are named as BeeGFS names them."""
    node = ("node",)
    return (
        *(
            Metric(f"{prefix}_{name}", "", float, f"`{name}`", node, "filesystem")
            for name in operations.split()
        ),
        Metric(
            f"{prefix}_{_OTHER}", "", float, "operations that are not reported by themselves",
            node, "filesystem",
        ),
    )  # fmt: skip


class ClientStats:
    """The counters of one kind of BeeGFS server, for each file system that is mounted here."""

    def __init__(
        self,
        kind: str,
        table: Sequence[Metric],
        *,
        command: Sequence[str],
        exclude: Sequence[str],
        exclude_operations: Sequence[str],
        timeout: float,
        root: str,
    ) -> None:
        """Ask servers of a `kind`, ``meta`` or ``storage``; `table` is what ``rows`` returned."""
        self._kind = kind
        self._prefix = table[-1].name.removesuffix(_OTHER)
        names = (row.name.removeprefix(self._prefix) for row in table[:-1])
        self._operations = [name for name in names if not proc.matches(name, exclude_operations)]
        self._command = command
        self._exclude = exclude
        self._timeout = timeout
        self._root = root
        self._soft = SoftErrors()

    def collect(self, time: int) -> Iterator[Message]:
        """Yield the counters of each file system; one that fails costs itself only.

        Raises
        ------
        OSError
            where no BeeGFS is mounted.

        """
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
                self._soft.note(f"collector beegfs_{self._kind}: {point}: {error}")
                continue
            tags = {"type": "node", "stype": "filesystem", "stype-id": proc.tag(point)}
            for name in self._operations:
                value = counts.pop(name, 0.0)
                yield metric(f"{self._prefix}{name}", value, time=time, tags=tags)
            rest = float(sum(counts.values()))
            yield metric(f"{self._prefix}{_OTHER}", rest, time=time, tags=tags)

    def _read(self, point: str) -> dict[str, float]:
        """Return the counters of one file system since its servers started, by operation."""
        options = ("--clientstats", f"--nodetype={self._kind}", f"--mount={point}", "--allstats")
        printed = run([*self._command, *options], timeout=self._timeout, given=b"\n")
        for line in printed.decode("utf-8", "replace").splitlines():
            # Sum:      120 [sum]     40 [open]     80 [stat]
            if line.startswith("Sum:"):
                return {found[2]: float(found[1]) for found in _COUNT.finditer(line)}
        raise DataError("beegfs-ctl printed no line 'Sum:'")
