"""Traffic of InfiniBand and Omni-Path ports: ``/sys/class/infiniband``.

The kernel counts data in units of 4 bytes; the metrics are in bytes. The counters start when the
driver is loaded; the rates (``_bw``) cover the time since the last sample and are omitted if a
counter decreased. Very old drivers have 32-bit counters that stop at their maximum.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

from ccpipe.errors import DataError
from ccpipe.message import Message, Uint, metric
from ccpipe.node.linux import proc
from ccpipe.node.sampling.metrics import Metric
from ccpipe.node.sampling.rates import Previous, emit, rate_rows, rates

_NODE = ("node",)
_TRAFFIC = (
    Metric("ib_recv", "bytes", int, "received", _NODE, "network"),
    Metric("ib_xmit", "bytes", int, "sent", _NODE, "network"),
    Metric("ib_recv_pkts", "packets", int, "received", _NODE, "network"),
    Metric("ib_xmit_pkts", "packets", int, "sent", _NODE, "network"),
    Metric("ib_total", "bytes", int, "received and sent", _NODE, "network"),
    Metric("ib_total_pkts", "packets", int, "received and sent", _NODE, "network"),
)
_FILES = ("port_rcv_data", "port_xmit_data", "port_rcv_packets", "port_xmit_packets")
_OCTETS = (4, 4, 1, 1)  # in a unit of each of these

_ERRORS = {
    "symbol_error": Metric("ib_symbol_errors", "", int, "minor link errors", _NODE, "network"),
    "link_downed": Metric("ib_link_downed", "", int, "failed recoveries", _NODE, "network"),
    "port_rcv_errors": Metric(
        "ib_recv_errors", "packets", int, "received with errors", _NODE, "network"
    ),
    "port_xmit_discards": Metric(
        "ib_xmit_discards", "packets", int, "not sent: port down or congested", _NODE,
        "network",
    ),
    "port_xmit_wait": Metric(
        "ib_xmit_wait", "ticks", int, "waiting with data to send", _NODE, "network"
    ),
}  # fmt: skip
_ACTIVE = Metric("ib_active", "", int, "1 if the port is active, otherwise 0", _NODE, "network")

_RATES = rate_rows(_TRAFFIC, "_bw")

METRICS = (
    *_TRAFFIC,
    *_RATES,
    *_ERRORS.values(),
    _ACTIVE,
)


class InfiniBand:
    """The traffic of each port, named by device and number: ``mlx5_0/1``.

    Parameters
    ----------
    include
        Ports to report, as shell patterns.
    exclude
        Ports to exclude, as shell patterns.
    root
        Root of the file system to read; set it to read a captured tree.

    """

    def __init__(
        self, *, include: Sequence[str] = ("*",), exclude: Sequence[str] = (), root: str = "/"
    ) -> None:
        self._include = include
        self._exclude = exclude
        self._path = Path(root, "sys/class/infiniband")
        self._previous = Previous[list[int]]()

    def collect(self, time: int) -> Iterator[Message]:
        """Yield counters, and rates since the last call.

        Raises
        ------
        OSError
            if there is no InfiniBand device.
        DataError
            if a counter is invalid.

        """
        folders = dict(self._ports())
        now = {port: _traffic(folder) for port, folder in folders.items()}
        before, seconds = self._previous.swap(now)
        for port, folder in folders.items():
            tags = {"type": "node", "stype": "network", "stype-id": proc.tag(port)}
            state = proc.word(folder / "state") or ""
            yield metric(_ACTIVE.name, int(state.endswith("ACTIVE")), time=time, tags=tags)
            for file, row in _ERRORS.items():
                if (errors := proc.counter(folder / "counters" / file)) is not None:
                    yield metric(row.name, errors, time=time, tags=tags)
            traffic = [_writable(counter) for counter in now[port]]
            yield from emit(_TRAFFIC, traffic, time, tags)
            yield from emit(_RATES, rates(before.get(port), now[port], seconds), time, tags)

    def _ports(self) -> Iterator[tuple[str, Path]]:
        for device in proc.names(self._path):
            for number in proc.names(self._path / device / "ports"):
                port = f"{device}/{number}"
                if proc.matches(port, self._include) and not proc.matches(port, self._exclude):
                    yield port, self._path / device / "ports" / number


def _traffic(folder: Path) -> list[int]:
    """Return what a port counted, in the order of the table; nothing where it does not count."""
    values: list[int] = []
    for file, octets in zip(_FILES, _OCTETS, strict=True):
        # Before Linux 4.5 the counters of 64 bits were in files of their own.
        wide = proc.counter(folder / "counters_ext" / f"{file}_64")
        value = proc.counter(folder / "counters" / file) if wide is None else wide
        if value is None:
            return []
        values.append(value * octets)
    return [*values, values[0] + values[1], values[2] + values[3]]


def _writable(value: int) -> int:
    """Return a value that fits the 64 bits of the wire: a sum of counters could be beyond."""
    if value >= 2**64:
        raise DataError(f"{value} is beyond 64 bits")
    return value if value < 2**63 else Uint(value)
