"""I/O of the node on GPFS (IBM Storage Scale) file systems: ``mmpmon -p``, ``fs_io_s``.

The program needs root. The counters start at mount time; the rates (``_bw``, ``_rate``) and deltas
(``_diff``) cover the time since the last sample, by the file system's own clock, and are omitted if
a counter decreased.
"""

from collections.abc import Iterator, Sequence

from ccpipe.config import Duration
from ccpipe.message import Message
from ccpipe.node.linux import proc
from ccpipe.node.sampling.collector import Metric, SoftErrors, difference_rows, emit
from ccpipe.process.child import run


def _row(name: str, unit: str, meaning: str) -> Metric:
    return Metric(name, unit, int, meaning, stype="filesystem")


_COUNTERS = {  # by the keyword of mmpmon
    "br": _row("gpfs_bytes_read", "bytes", "read"),
    "bw": _row("gpfs_bytes_written", "bytes", "written"),
    "rdc": _row("gpfs_num_reads", "requests", "read calls"),
    "wc": _row("gpfs_num_writes", "requests", "write calls"),
    "oc": _row("gpfs_num_opens", "requests", "files opened and created"),
    "cc": _row("gpfs_num_closes", "requests", "files closed"),
    "dir": _row("gpfs_num_readdirs", "requests", "directories read"),
    "iu": _row("gpfs_num_inode_updates", "requests", "inodes written"),
}
_TOTALS = (
    _row("gpfs_bytes_total", "bytes", "read and written"),
    _row("gpfs_iops", "requests", "read and write calls"),
    _row("gpfs_metaops", "requests", "opens, closes, directories read and inodes written"),
)
_BYTES, _CALLS = 2, 4  # of the counters; the rest are operations on metadata
_LEVELS = (*_COUNTERS.values(), *_TOTALS)
_SINCE = difference_rows(_LEVELS)
_RATE_NAMES = (
    "gpfs_bw_read", "gpfs_bw_write", "gpfs_reads_rate", "gpfs_writes_rate", "gpfs_opens_rate",
    "gpfs_closes_rate", "gpfs_readdirs_rate", "gpfs_inode_updates_rate", "gpfs_bw_total",
    "gpfs_iops_rate", "gpfs_metaops_rate",
)  # fmt: skip
_RATES = tuple(
    row._replace(name=name, unit=f"{row.unit}/s", kind=float)
    for name, row in zip(_RATE_NAMES, _LEVELS, strict=True)
)

METRICS = (*_LEVELS, *_SINCE, *_RATES)

_INT64_MAX = 2**63 - 1
_REQUEST = b"once fs_io_s\n"


class Gpfs:
    """The GPFS file systems of the node; the first sample has no rates.

    Parameters
    ----------
    command
        The program with its arguments; it receives requests on standard input.
    exclude
        File systems to exclude, as shell patterns.
    timeout
        Time limit for the program.

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
        self.soft = SoftErrors("gpfs")

    def collect(self, time: int) -> Iterator[Message]:
        before, self._before = self._before, self._read()
        for name, (timestamp, counters) in self._before.items():
            tags = {"type": "node", "stype": "filesystem", "stype-id": proc.tag(name)}
            yield from emit(_LEVELS, _with_totals(counters), time, tags)
            then, known = before.get(name, (timestamp, None))
            gains = proc.gained(known, counters)
            if gains is not None:
                gains = _with_totals(gains)
                yield from emit(_SINCE, gains, time, tags)
                if timestamp > then:
                    rates = [gain / (timestamp - then) for gain in gains]
                    yield from emit(_RATES, rates, time, tags)

    def _read(self) -> dict[str, tuple[float, list[int]]]:
        printed = run(self._command, timeout=self._timeout, given=_REQUEST)
        found = {}
        for number, line in enumerate(printed.decode("utf-8", "replace").splitlines(), 1):
            if not line.startswith("_fs_io_s_ "):
                continue  # _ver_, _response_ and other lines
            place = f"mmpmon: line {number}"
            _, *words = line.split()
            reported = {
                key.strip("_"): word for key, word in zip(words[::2], words[1::2], strict=False)
            }
            if reported.get("rc") != "0":
                self.soft.note(f"{place}: GPFS answers rc {reported.get('rc', 'nothing')}")
                continue
            if "fs" not in reported:
                continue  # nothing is mounted
            if not proc.matches(reported["fs"], self._exclude):
                wanted = [reported.get(key, "") for key in ("t", "tu", *_COUNTERS)]
                with self.soft.noted():
                    seconds, parts, *counters = proc.counters(place, wanted, minimum=len(wanted))
                    found[reported["fs"]] = seconds + parts / 1e6, counters
        self.soft.report(found)
        return found


def _with_totals(counters: Sequence[int]) -> list[int]:
    """Return counters and their totals, which stop at the maximum of the wire."""
    groups = counters[:_BYTES], counters[_BYTES:_CALLS], counters[_CALLS:]
    return [*counters, *(min(sum(group), _INT64_MAX) for group in groups)]
