"""How far the messages of each partition are safe: the offset that may be committed."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class _Partition:
    open: dict[int, None] = field(default_factory=dict)
    """Offsets handed over and not acknowledged, in their order."""
    next: int = 0
    """The offset after the last one handed over."""
    committed: int = 0


class Offsets:
    """Offsets handed over and acknowledged, by partition.

    An offset may be committed when all before it are safe, in whatever order they became so.
    """

    def __init__(self) -> None:
        """Begin with no partition."""
        self._partitions: dict[Any, _Partition] = {}

    def hand_over(self, partition: Any, offset: int) -> None:
        """Note a message that is on its way."""
        state = self._partitions.setdefault(partition, _Partition())
        state.open[offset] = None
        state.next = offset + 1

    def acknowledge(self, partition: Any, offset: int) -> None:
        """Note that a message is safe; of a partition that was taken away it means nothing."""
        if (state := self._partitions.get(partition)) is not None:
            state.open.pop(offset, None)

    def positions(self) -> dict[Any, int]:
        """Return the offsets to commit, of partitions that moved since the last commit."""
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
        """Note what was committed."""
        for partition, offset in positions.items():
            if (state := self._partitions.get(partition)) is not None:
                state.committed = offset

    def forget(self, partitions: Iterable[Any]) -> None:
        """Forget partitions that belong to another process now."""
        for partition in partitions:
            self._partitions.pop(partition, None)
