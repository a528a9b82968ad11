"""Tracks which messages of each partition are stored, and so which offset may be committed."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class _Partition:
    open: dict[int, None] = field(default_factory=dict)
    """Offsets handed over and not acknowledged, in order."""
    next: int = 0
    """The offset after the last one handed over."""
    committed: int = 0


class Offsets:
    """Offsets handed over and acknowledged, by partition.

    An offset may be committed once all before it are acknowledged, in whatever order.
    """

    def __init__(self) -> None:
        self._partitions: dict[Any, _Partition] = {}

    def hand_over(self, partition: Any, offset: int) -> None:
        state = self._partitions.setdefault(partition, _Partition())
        state.open[offset] = None
        state.next = offset + 1

    def acknowledge(self, partition: Any, offset: int) -> None:
        """Record an acknowledgement; ignored for a revoked partition."""
        if (state := self._partitions.get(partition)) is not None:
            state.open.pop(offset, None)

    def positions(self) -> dict[Any, int]:
        """Return the offsets to commit, of partitions with progress since the last commit."""
        found = {
            partition: next(iter(state.open), state.next)
            for partition, state in self._partitions.items()
        }
        return {
            partition: offset
            for partition, offset in found.items()
            if offset > self._partitions[partition].committed
        }

    def commit(self, positions: dict[Any, int]) -> None:
        for partition, offset in positions.items():
            if (state := self._partitions.get(partition)) is not None:
                state.committed = offset

    def forget(self, partitions: Iterable[Any]) -> None:
        for partition in partitions:
            self._partitions.pop(partition, None)
