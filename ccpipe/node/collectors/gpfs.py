"""What the node did on its GPFS (IBM Storage Scale) file systems: ``mmpmon -p``, ``fs_io_s``.

The program needs root. The counters begin when the file system is mounted; the rates (``_bw``,
``_rate``) are over the time since the last sample, by the file system's own clock, and are left
out where a counter went down.
"""

from collections.abc import Iterator, Sequence

from ccpipe.config import Duration
from ccpipe.message import Message, metric
from ccpipe.child_process import run
from ccpipe.node.linux import proc
from ccpipe.node.sampling.metrics import Metric
from ccpipe.node.sampling.soft_errors import SoftErrors

_NODE = ("node",)
_COUNTERS = {  # by the keyword of mmpmon
    "br": Metric("gpfs_bytes_read", "bytes", int, "read", _NODE, "filesystem"),
    "bw": Metric("gpfs_bytes_written", "bytes", int, "written", _NODE, "filesystem"),
    "rdc": Metric("gpfs_num_reads", "requests", int, "calls of read", _NODE, "filesystem"),
    "wc": Metric("gpfs_num_writes", "requests", int, "calls of write", _NODE, "filesystem"),
    "oc": Metric("gpfs_num_opens", "", int, "files opened and created", _NODE, "filesystem"),
    "cc": Metric("gpfs_num_closes", "", int, "files closed", _NODE, "filesystem"),
    "dir": Metric("gpfs_num_readdirs", "", int, "folders read", _NODE, "filesystem"),
    "iu": Metric("gpfs_num_inode_updates", "", int, "inodes written", _NODE, "filesystem"),
}
_BYTES, _CALLS = 2, 4
_RATES = (  # in the order of the counters that they are of
    Metric("gpfs_bw_read", "bytes/s", float, "read", _NODE, "filesystem"),
    Metric("gpfs_bw_write", "bytes/s", float, "written", _NODE, "filesystem"),
    Metric("gpfs_num_reads_rate", "requests/s", float, "calls of read", _NODE, "filesystem"),
    Metric("gpfs_num_writes_rate", "requests/s", float, "calls of write", _NODE, "filesystem"),
)
_SUMS = (
    Metric("gpfs_iops", "requests/s", float, "calls of read and write", _NODE, "filesystem"),
    Metric(
        "gpfs_metaops", "requests/s", float,
        "opens, closes, folders read and inodes written", _NODE, "filesystem",
    ),
)  # fmt: skip

METRICS = (*_COUNTERS.values(), *_RATES, *_SUMS)

_REQUEST = b"once fs_io_s\n"


class Gpfs:
    """The GPFS file systems of the node; the first sample has no rates.

    Parameters
    ----------
    command
        The program with its arguments; it is told on its standard input what to print.
    exclude
        File systems to leave out, as patterns of a shell.
    timeout
        How long it may take.

    """

    def __init__(
        self,
        *,
        command: Sequence[str] = ("/usr/lpp/mmfs/bin/mmpmon", "-p"),
        exclude: Sequence[str] = (),
        timeout: Duration = Duration(5),
    ) -> None:
        self._command = command
        self._exclude = exclude
        self._timeout = float(timeout)
        self._before: dict[str, tuple[float, list[int]]] = {}
        self._soft = SoftErrors()

    def collect(self, time: int) -> Iterator[Message]:
        """Yield counters, and rates since the last call.

        Raises
        ------
        OSError
            where there is no GPFS, or it is not for us to ask.
        DataError
            where a counter is none.

        """
        before, self._before = self._before, self._read()
        for name, (timestamp, counters) in self._before.items():
            tags = {"type": "node", "stype": "filesystem", "stype-id": proc.tag(name)}
            for row, counter in zip(_COUNTERS.values(), counters, strict=True):
                yield metric(row.name, counter, time=time, tags=tags)
            then, known = before.get(name, (timestamp, None))
            gains = proc.gained(known, counters)
            if gains is not None and timestamp > then:
                rates = [gain / (timestamp - then) for gain in gains]
                sums = [sum(rates[_BYTES:_CALLS]), sum(rates[_CALLS:])]
                for row, rate in zip((*_RATES, *_SUMS), (*rates[:_CALLS], *sums), strict=True):
                    yield metric(row.name, rate, time=time, tags=tags)

    def _read(self) -> dict[str, tuple[float, list[int]]]:
        """Return when mmpmon counted, in seconds, and its counters, by file system."""
        printed = run(self._command, timeout=self._timeout, given=_REQUEST)
        found = {}
        for number, line in enumerate(printed.decode("utf-8", "replace").splitlines(), 1):
            if not line.startswith("_fs_io_s_ "):
                continue  # _ver_, _response_ and whatever else stands between
            place = f"collector gpfs: mmpmon: line {number}"
            _, *words = line.split()
            reported = {
                key.strip("_"): word for key, word in zip(words[::2], words[1::2], strict=False)
            }
            if reported.get("rc") != "0":
                self._soft.note(f"{place}: GPFS answers rc {reported.get('rc', 'nothing')}")
                continue
            if "fs" not in reported:
                continue  # nothing is mounted
            if not proc.matches(reported["fs"], self._exclude):
                wanted = [reported.get(key, "") for key in ("t", "tu", *_COUNTERS)]
                seconds, millionths, *counters = proc.counters(place, wanted, minimum=len(wanted))
                found[reported["fs"]] = seconds + millionths / 1e6, counters
        return found
