"""What processes use of NVIDIA's cards, where the driver's library NVML reports it."""

from typing import Any, NamedTuple

from ccpipe.errors import CcpipeError
from ccpipe.node.collectors.sonar.envelope import Errors
from ccpipe.node.linux.nvml import Driver


class GpuUsage(NamedTuple):
    """Of one process, over all cards."""

    memory: int  # bytes
    utilization: float  # percent of one card


class Gpus:
    """The cards of the node; nothing is loaded where there is no driver."""

    def __init__(self, *, root: str = "/") -> None:
        self._is_there = Driver(root).is_there()
        self._root = root
        self._cards: Any = None

    def poll(self) -> dict[int, GpuUsage] | None:
        """Return what processes use, by pid; None if no card reports it."""
        if not self._is_there:
            return None
        from ccpipe.node.collectors.sonar.cards import NvidiaCards

        self._cards = self._cards or NvidiaCards(root=self._root)
        errors = Errors()
        try:
            gpus, processes = self._cards.sample(errors)
        except (CcpipeError, OSError):
            return None
        if not gpus:
            return None
        return {
            pid: GpuUsage(
                sum(use.gpu_memory for use in uses) * 1024, sum(use.gpu_util for use in uses)
            )
            for pid, uses in processes.items()
        }
