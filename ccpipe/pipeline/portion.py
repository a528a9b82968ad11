"""Portions: the records of one write, and the items of the queue that they came from."""

from bisect import bisect_right
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from ccpipe.pipeline.interfaces import DeadLetter, Records, RecordType
from ccpipe.pipeline.message_ids import MessageIds
from ccpipe.pipeline.queue import Item


@dataclass(slots=True)
class Portion:
    """Records for one write, with the queue items that they came from."""

    records: Records
    type: RecordType
    rows: Sequence[tuple[Item, int]]
    """Item of each record, and its index there; a ``Rows`` as long as nothing was rejected."""
    ids: MessageIds | None = None
    """Messages of the records, if some are known and the sink stores each message once."""

    def letter(self, index: int, reason: str) -> DeadLetter:
        """Return one record as a dead letter."""
        item, row = self.rows[index]
        batch = item.batch
        origin = batch.origin_of(row) if batch.origin_of else batch.origin
        return DeadLetter(self.records.original(index), reason, origin)

    def without(self, bad: Sequence[int]) -> "list[Portion]":
        """Return the portion without some records."""
        good = sorted(set(range(len(self.records))).difference(bad))
        if not good:
            return []
        records = self.type.of([self.records[i] for i in good])
        ids = self.ids and self.ids.without(sorted(bad))
        return [Portion(records, self.type, [self.rows[i] for i in good], ids)]

    @property
    def is_one_message(self) -> bool:
        """Whether halves would split a message that the sink stores once.

        The first of them has no id: after a crash in between it would be stored twice.
        """
        return self.ids is not None and self._middle() not in self.ids.ends

    def _middle(self) -> int:
        half = len(self.records) // 2
        return self.ids.near(half) if self.ids else half

    def halves(self) -> "list[Portion]":
        """Return two portions, the first half last."""
        half = self._middle()
        rows = self.rows
        first, second = self.ids.split(half) if self.ids else (None, None)
        if first and not first.are_known:
            first = None  # a part of a message that is stored when the rest is
        return [
            Portion(self.records[half:], self.type, rows[half:], second),
            Portion(self.records[:half], self.type, rows[:half], first),
        ]


class Rows(Sequence[tuple[Item, int]]):
    """Item and index of each record, computed only for the few that need it."""

    def __init__(self, items: Sequence[Item]) -> None:
        self._items = items
        self._ends = list(accumulate(len(item.batch.records) for item in items))
        self.numbers = range(self._ends[-1])

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            view = copy(self)
            view.numbers = self.numbers[index]
            return view
        row = self.numbers[index]
        place = bisect_right(self._ends, row)
        return self._items[place], row - (self._ends[place - 1] if place else 0)


def ids_of(items: Sequence[Item]) -> MessageIds | None:
    """Return the messages of the items' records; None if none is known."""
    parts = []
    for item in items:
        batch = item.batch
        ids = batch.ids_of(batch.records) if batch.ids_of else None
        parts.append(ids or MessageIds.unknown(len(batch.records)))
    ids = MessageIds.concat(parts)
    return ids if ids.are_known else None
