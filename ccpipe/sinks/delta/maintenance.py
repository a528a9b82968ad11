"""Compaction, retention and vacuum of a table, concurrent with its writes.

Any bridge does all of it. Where two do the same at once, one of them fails to commit, which
changes nothing.
"""

import asyncio
import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import NamedTuple

from ccpipe.errors import DeniedError, UnavailableError
from ccpipe.formats.delta import (
    CommitFailedError,
    DeltaAddress,
    DeltaTable,
    TableNotFoundError,
    WriterProperties,
)
from ccpipe.process.background import background

log = logging.getLogger(__name__)

FILES = 32
"""Number of new files of a partition from which it is compacted."""

TARGET_BYTES = 64 * 2**20
"""Size of a compacted file, approximately; larger files are left alone."""

PARTITIONS = 1000
"""Number of partitions whose number of files is remembered."""

HOUR = 3600
DAY_SECONDS = 24.0 * HOUR


class TablePartition(NamedTuple):
    """The rows of a cluster and day."""

    cluster: str | None
    date: date | None

    @property
    def filters(self) -> list[tuple[str, str, str]]:
        """Its files; the library takes an empty text as null."""
        return [
            ("cluster", "=", self.cluster or ""),
            ("date", "=", "" if self.date is None else str(self.date)),
        ]


class TableMaintenance:
    """Runs in one thread at a time."""

    def __init__(
        self,
        address: DeltaAddress,
        properties: WriterProperties,
        *,
        compact: bool,
        retention: float,
        vacuum: float,
    ) -> None:
        """Maintain the table at `address`; `retention` and `vacuum` are seconds, 0 is never."""
        self.address = address
        self.properties = properties
        self.compact = compact
        self.retention = retention
        self.vacuum = vacuum
        self._compacted: OrderedDict[TablePartition, int] = OrderedDict()
        self._task: asyncio.Task[None] | None = None
        self._is_closing = threading.Event()
        self._next = 0.0

    def crowded(
        self, table: DeltaTable, partitions: Iterable[TablePartition]
    ) -> list[TablePartition]:
        """Return the partitions that have many new files; may be called in a thread."""
        return [
            each
            for each in partitions
            if self.compact and self._count(table, each) >= self._compacted.get(each, 0) + FILES
        ]

    def start(self, crowded: Sequence[TablePartition]) -> None:
        """Compact partitions, and do what is due, unless work is still running."""
        if self._task is None or self._task.done():
            is_due = (self.vacuum or self.retention) and time.monotonic() >= self._next
            if crowded or is_due:
                self._task = background(self._work(crowded), "ccpipe-maintenance")

    async def close(self) -> None:
        self._is_closing.set()
        if self._task is not None:
            await asyncio.wait([self._task])

    @staticmethod
    def _count(table: DeltaTable, partition: TablePartition) -> int:
        return len(table.file_uris(file_pruning_predicate=partition.filters))

    async def _work(self, crowded: Sequence[TablePartition]) -> None:
        try:
            await asyncio.to_thread(self._work_in_thread, crowded)
        except CommitFailedError as error:  # another bridge has done it meanwhile
            log.debug("%s", error)
        except (UnavailableError, DeniedError, TableNotFoundError) as error:
            log.warning("the table is not maintained for now: %s", error)
        except Exception:  # writing goes on
            log.exception("the table is not maintained for now")

    def _work_in_thread(self, crowded: Sequence[TablePartition]) -> None:
        table = self.address.open()
        with self.address.errors():
            for partition in crowded:
                if not self._is_closing.is_set():
                    self._compact(table, partition)
            if time.monotonic() >= self._next and not self._is_closing.is_set():
                self._next = time.monotonic() + DAY_SECONDS
                if self.retention:
                    remove_old(table, self.retention)
                if self.vacuum:
                    remove_unreferenced(table, self.vacuum)

    def _compact(self, table: DeltaTable, partition: TablePartition) -> None:
        table.optimize.compact(
            partition_filters=partition.filters,
            target_size=TARGET_BYTES,
            max_concurrent_tasks=1,
            writer_properties=self.properties,
        )
        self._compacted[partition] = self._count(table, partition)
        self._compacted.move_to_end(partition)
        if len(self._compacted) > PARTITIONS:
            self._compacted.popitem(last=False)


def remove_old(table: DeltaTable, retention: float) -> None:
    """Remove the rows of days that are older than `retention` seconds."""
    oldest = datetime.now(UTC).date() - timedelta(seconds=retention)
    removed = table.delete(f"date < '{oldest}'")
    if count := removed.get("num_removed_files", 0):
        log.info("removed %d files of days before %s", count, oldest)


def remove_unreferenced(table: DeltaTable, age: float) -> None:
    """Delete files of that age in seconds that are not of the table, or of killed writers."""
    table.vacuum(
        retention_hours=round(age / HOUR),
        dry_run=False,
        enforce_retention_duration=False,
        full=True,
    )
