"""Traffic of InfiniBand and Omni-Path ports: ``/sys/class/infiniband``.

The kernel counts data in units of 4 bytes; the metrics are in bytes. The counters start when the
driver is loaded; the rates (``_bw``) cover the time since the last sample and are omitted if a
counter decreased. Very old drivers have 32-bit counters that stop at their maximum.
"""

import re
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from ccpipe.errors import DataError
from ccpipe.message import Message, Uint, metric
from ccpipe.node.linux import proc
from ccpipe.node.sampling.collector import Metric, Previous, SoftErrors, gains, rate_rows

_row = partial(Metric, stype="network")
_TRAFFIC = (
    _row("ib_recv", "bytes", int, "received"),
    _row("ib_xmit", "bytes", int, "sent"),
    _row("ib_recv_pkts", "packets", int, "received"),
    _row("ib_xmit_pkts", "packets", int, "sent"),
    _row("ib_total", "bytes", int, "received and sent"),
    _row("ib_total_pkts", "packets", int, "received and sent"),
)
_FILES = ("port_rcv_data", "port_xmit_data", "port_rcv_packets", "port_xmit_packets")
_OCTETS = (4, 4, 1, 1)  # in a unit of each of these
_SUMS = {"ib_total": ("ib_recv", "ib_xmit"), "ib_total_pkts": ("ib_recv_pkts", "ib_xmit_pkts")}
_STATE = re.compile(r"\d: \w+", re.ASCII)

_ERRORS = {
    "symbol_error": _row("ib_symbol_errors", "", int, "minor link errors"),
    "link_downed": _row("ib_link_downed", "", int, "failed recoveries"),
    "port_rcv_errors": _row("ib_recv_errors", "packets", int, "received with errors"),
    "port_xmit_discards": _row(
        "ib_xmit_discards", "packets", int, "not sent: port down or congested"
    ),
    "port_xmit_wait": _row("ib_xmit_wait", "ticks", int, "waiting with data to send"),
}
_ACTIVE = _row("ib_active", "", int, "1 if the port is active, otherwise 0")

METRICS = (*_TRAFFIC, *rate_rows(_TRAFFIC, "_bw"), *_ERRORS.values(), _ACTIVE)


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
        self._previous = Previous[dict[str, int]]()
        self.soft = SoftErrors("infiniband")

    def collect(self, time: int) -> Sequence[Message]:
        found = list(self._messages(time))
        self.soft.report(found)
        return found

    def _messages(self, time: int) -> Iterator[Message]:
        directories = dict(self._ports())
        now = {port: self._traffic(directory) for port, directory in directories.items()}
        before, seconds = self._previous.swap(now)
        for port, directory in directories.items():
            tags = {"type": "node", "stype": "network", "stype-id": proc.tag(port)}
            with self.soft.noted():
                if (is_active := _is_active(directory / "state")) is not None:
                    yield metric(_ACTIVE.name, int(is_active), time=time, tags=tags)
            for file, row in _ERRORS.items():
                with self.soft.noted():
                    if (errors := proc.counter(directory / "counters" / file)) is not None:
                        yield metric(row.name, errors, time=time, tags=tags)
            for name, value in now[port].items():
                yield metric(name, value if value < 2**63 else Uint(value), time=time, tags=tags)
            for name, gain in gains(before.get(port, {}), now[port]).items():
                if seconds > 0:
                    yield metric(f"{name}_bw", gain / seconds, time=time, tags=tags)

    def _ports(self) -> Iterator[tuple[str, Path]]:
        for device in proc.names(self._path):
            numbers: list[str] = []
            with self.soft.noted():
                numbers = proc.names(self._path / device / "ports")
            for number in numbers:
                port = f"{device}/{number}"
                if proc.matches(port, self._include) and not proc.matches(port, self._exclude):
                    yield port, self._path / device / "ports" / number

    def _traffic(self, directory: Path) -> dict[str, int]:
        values: dict[str, int] = {}
        # Before Linux 4.5 the 64-bit counters were in separate files. The 32-bit ones, which stop
        # at their maximum, never replace one that cannot be read.
        name = "counters_ext/{}_64" if (directory / "counters_ext").is_dir() else "counters/{}"
        for row, file, octets in zip(_TRAFFIC, _FILES, _OCTETS, strict=False):
            with self.soft.noted():
                value = proc.counter(directory / name.format(file))
                if value is not None:
                    values[row.name] = _writable(value * octets)
        for total, parts in _SUMS.items():
            with self.soft.noted():
                if all(part in values for part in parts):
                    values[total] = _writable(sum(values[part] for part in parts))
        return values


def _writable(value: int) -> int:
    """Return a value that fits the 64 bits of the wire: a sum of counters could be beyond."""
    if value >= 2**64:
        raise DataError(f"{value} is beyond 64 bits")
    return value


def _is_active(path: Path) -> bool | None:
    state = proc.word(path)
    if state is not None and not _STATE.fullmatch(state):
        raise DataError(f"{path}: {state!r:.40} is not a state")
    return None if state is None else state.endswith("ACTIVE")
