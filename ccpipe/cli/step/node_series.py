"""Samples of the whole node for a profile, from the publisher's collectors.

Series whose counters are missing or not readable are left out.
"""

import time
from collections.abc import Callable, Iterable, Mapping

from ccpipe.errors import DataError
from ccpipe.message import Message
from ccpipe.node.collectors.infiniband import InfiniBand
from ccpipe.node.collectors.network import Network
from ccpipe.node.collectors.rapl import Rapl
from ccpipe.node.collectors.storage.lustre import Lustre
from ccpipe.node.gather.jobacct.poller import EnergyReading
from ccpipe.node.gather.profile import SeriesSelection

Values = Mapping[str, int | float | None]

_MEBIBYTE = 2**20


class NodeSeries:
    """Changes of the node's counters since they were last read, below a root directory."""

    def __init__(self, *, root: str = "/") -> None:
        self._profile_rapl, self._step_rapl = Rapl(root=root), Rapl(root=root)
        self._lustre = Lustre(root=root)
        self._networks = InfiniBand(root=root), Network(root=root)
        self._joules = 0.0
        self._traffic: dict[str, float] | None = None

    def samplers(self) -> list[tuple[str, SeriesSelection, Callable[[], Values | None]]]:
        """Return the name of each series' interval, the series, and what reads a sample."""
        return [
            ("energy", SeriesSelection.ENERGY, self.power),
            ("filesystem", SeriesSelection.LUSTRE, self.filesystem),
            ("network", SeriesSelection.NETWORK, self.network),
        ]

    def power(self) -> Values | None:
        sums = _sums(self._profile_rapl.collect)
        return None if sums is None or not sums else {"Power": round(_watts(sums))}

    def energy_used(self) -> EnergyReading | None:
        """Return the joules since the first call, and the watts now."""
        sums = _sums(self._step_rapl.collect)
        if sums is None or not sums:
            return None
        self._joules += sums.get("cpu_energy", 0) + sums.get("mem_energy", 0)
        return EnergyReading(round(self._joules), round(_watts(sums)))

    def filesystem(self) -> Values | None:
        sums = _sums(self._lustre.collect)
        if sums is None:
            return None
        return {
            "Reads": int(sums.get("lustre_read_requests_diff", 0)),
            "ReadMB": sums.get("lustre_read_bytes_diff", 0) / _MEBIBYTE,
            "Writes": int(sums.get("lustre_write_requests_diff", 0)),
            "WriteMB": sums.get("lustre_write_bytes_diff", 0) / _MEBIBYTE,
        }

    def network(self) -> Values | None:
        """Return a sample of the series Network: InfiniBand's ports, or else all interfaces."""
        infiniband, ethernet = self._networks
        sums = _sums(infiniband.collect)
        names = ("ib_recv_pkts", "ib_xmit_pkts", "ib_recv", "ib_xmit")
        if sums is None:
            sums = _sums(ethernet.collect)
            names = ("net_pkts_in", "net_pkts_out", "net_bytes_in", "net_bytes_out")
        if sums is None:
            return None
        before, self._traffic = self._traffic or sums, sums
        packets_in, packets_out, received, sent = (
            max(0, sums.get(name, 0) - before.get(name, 0)) for name in names
        )
        return {
            "PacketsIn": int(packets_in),
            "PacketsOut": int(packets_out),
            "InMB": received / _MEBIBYTE,
            "OutMB": sent / _MEBIBYTE,
        }


def _watts(sums: Mapping[str, float]) -> float:
    return sums.get("cpu_power", 0) + sums.get("mem_power", 0)


def _sums(collect: Callable[[int], Iterable[Message]]) -> dict[str, float] | None:
    """Return each metric summed over devices; None if they cannot be read."""
    sums: dict[str, float] = {}
    try:
        for message in collect(time.time_ns()):
            if not isinstance(message.value, str):
                sums[message.name] = sums.get(message.name, 0) + message.value
    except (OSError, DataError):
        return None
    return sums
