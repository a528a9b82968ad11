"""Portions: the records of one write, and the items of the queue that they came from."""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, compress

from ccpipe.pipeline.dead_letters import DeadLetter
from ccpipe.pipeline.queue import Item
from ccpipe.records import Records


class Rows:
    """The item that each record of a write came from."""

    def __init__(self, items: Sequence[Item]) -> None:
        """Take the items whose records are written together, in order."""
        self.items = items
        self._ends = list(accumulate(len(item.records) for item in items))

    def item(self, row: int) -> Item:
        """Return the item of a record."""
        return self.items[bisect_right(self._ends, row)]


@dataclass(slots=True)
class Portion:
    """Records for one write."""

    records: Records
    rows: Rows
    numbers: Sequence[int]
    """Row of each record among those that were joined for one write."""

    @classmethod
    def of(cls, items: Sequence[Item]) -> "Portion":
        """Join the records of items, of which none is empty."""
        parts = [item.records for item in items]
        records = type(parts[0]).concat(parts) if len(parts) > 1 else parts[0]
        return cls(records, Rows(items), range(len(records)))

    def item(self, index: int) -> Item:
        """Return the item that a record came from."""
        return self.rows.item(self.numbers[index])

    def letter(self, index: int, reason: str) -> DeadLetter:
        """Return one record as a dead letter."""
        provenance = self.records.provenance
        origin = provenance.origin(index) if provenance else ""
        return DeadLetter(self.records.original(index), reason, origin or self.item(index).origin)

    def without(self, bad: Sequence[int]) -> "list[Portion]":
        """Return the portion without some records."""
        keep = bytearray(b"\1") * len(self.records)
        for index in bad:
            keep[index] = 0
        numbers = list(compress(self.numbers, keep))
        return [Portion(self.records.take(keep), self.rows, numbers)] if numbers else []

    @property
    def has_ids(self) -> bool:
        """Whether any of its messages can be recognized when it is redelivered."""
        known = self.records.provenance
        return known is not None and known.has_ids

    @property
    def is_one_message(self) -> bool:
        """Whether halves would divide a message that can be recognized when it is redelivered.

        The first of them has no id: after a crash in between it would be stored twice.
        """
        known = self.records.provenance
        return known is not None and self.has_ids and known.is_inside(self._middle())

    def _middle(self) -> int:
        half = len(self.records) // 2
        known = self.records.provenance
        return known.near(half) if known else half

    def halves(self) -> "list[Portion]":
        """Return two portions, the first half last."""
        half = self._middle()
        first, second = self.records[:half], self.records[half:]
        if known := self.records.provenance:
            first.provenance, second.provenance = known.split(half)
        return [
            Portion(second, self.rows, self.numbers[half:]),
            Portion(first, self.rows, self.numbers[:half]),
        ]
