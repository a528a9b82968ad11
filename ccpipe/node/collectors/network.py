"""Traffic of the network interfaces: ``/proc/net/dev``.

The counters start when the interface appears; the rates (``_bw``) cover the time since the last
sample and are omitted if a counter decreased because the interface or its driver was reset.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from ccpipe.errors import DataError
from ccpipe.message import Message
from ccpipe.node.linux import proc
from ccpipe.node.sampling.collector import Metric, Previous, SoftErrors, emit, rate_rows, rates

_row = partial(Metric, stype="network")
COUNTERS = (
    _row("net_bytes_in", "bytes", int, "received"),
    _row("net_pkts_in", "packets", int, "received"),
    _row("net_bytes_out", "bytes", int, "sent"),
    _row("net_pkts_out", "packets", int, "sent"),
)
_COLUMNS = (0, 1, 8, 9)  # of these, among the 16 after an interface's name
_ALL_COLUMNS = 16

RATES = rate_rows(COUNTERS, "_bw")

METRICS = (*COUNTERS, *RATES)


class Network:
    """The traffic of each interface; the first sample has no rates.

    Parameters
    ----------
    include
        Interfaces to report, as shell patterns; default: all.
    exclude
        Interfaces to exclude from these, as shell patterns.
    interface_aliases
        Alternative names of an interface on some nodes, keyed by the name used in `include` and
        `exclude`, such as `eno1 = ["eno1np0"]`. Metrics carry the name on the node.
    root
        Root of the file system to read; set it to read a captured tree.

    """

    def __init__(
        self,
        *,
        include: Sequence[str] = ("*",),
        exclude: Sequence[str] = ("lo",),
        interface_aliases: dict[str, list[str]] | None = None,
        root: str = "/",
    ) -> None:
        self._include = tuple(include)
        self._exclude = tuple(exclude)
        self._canonical = {
            alias: name for name, aliases in (interface_aliases or {}).items() for alias in aliases
        }
        self._path = Path(root, "proc/net/dev")
        self._previous = Previous[list[int]]()
        self.soft = SoftErrors("network")

    def collect(self, time: int) -> Iterator[Message]:
        now = self._read()
        before, seconds = self._previous.swap(now)
        for interface, counters in now.items():
            tags = {"type": "node", "stype": "network", "stype-id": proc.tag(interface)}
            yield from emit(COUNTERS, counters, time, tags)
            yield from emit(RATES, rates(before.get(interface), counters, seconds), time, tags)

    def _read(self) -> dict[str, list[int]]:
        found = {}
        for place, line in proc.lines(self._path):
            # Before 3.x no blank separates the colon and a long number.
            start, colon, numbers = line.partition(":")
            interface = start.strip()
            name = self._canonical.get(interface, interface)
            if "|" in line or proc.matches(name, self._exclude):
                continue  # the two lines of headings
            with self.soft.noted():
                columns = proc.counters(place, numbers.split(), minimum=_ALL_COLUMNS)
                if not (interface and colon):
                    raise DataError(f"{place}: the interface has no name")
                if proc.matches(name, self._include):
                    found[interface] = [columns[column] for column in _COLUMNS]
        self.soft.report(found)
        return found
