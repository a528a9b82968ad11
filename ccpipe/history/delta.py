"""History from the Delta table of a bridge, read with DuckDB through pyarrow.

Files are chosen by cluster and day, and by the range of their times in the table's log, and within
them row groups by the statistics of the column ``time``. No extension of DuckDB is needed.
"""

import functools
import operator
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from ccpipe.formats.delta import DeltaAddress, DeltaTable, TableNotFoundError, pc
from ccpipe.history.parquet import Connection, ParquetHistory, SelectedRows, StoredRows

_MAX_SECONDS = 9_223_372_036
"""The end of times in nanoseconds, in the year 2262."""


class DeltaHistory(ParquetHistory):
    """Reads a table, one query at a time, as of the query."""

    def __init__(self, address: DeltaAddress, averaged: Callable[[], frozenset[str]]) -> None:
        """Use the table at `address`, which may be created later; see ``ParquetHistory``."""
        super().__init__(Path(address.shown), averaged)
        self.address = address
        self._table: DeltaTable | None = None

    def select(
        self,
        connection: Connection,  # noqa: ARG002
        cluster: str | None,
        start: float,  # noqa: ARG002 - each statement has its own
        stop: float,  # noqa: ARG002
    ) -> SelectedRows:
        """Select the rows of a cluster, or of all."""
        with self.address.errors():
            try:
                if self._table is None:
                    self._table = self.address.open()
                else:
                    self._table.update_incremental()
            except TableNotFoundError:
                self._table = None
        return _SelectedRows(self._table, cluster)


class _SelectedRows:
    """The rows of a version of a table."""

    def __init__(self, table: DeltaTable | None, cluster: str | None) -> None:
        self.table = table
        self.cluster = cluster

    def within(
        self, connection: Connection, spans: Sequence[tuple[float, float]]
    ) -> StoredRows | None:
        """Choose files by partition and by their times."""
        if self.table is None:
            return None
        times = [(_time(start), _time(stop)) for start, stop in spans]
        first, last = min(first for first, _ in times), max(last for _, last in times)
        files = [("date", ">=", str(first.date())), ("date", "<=", str(last.date()))]
        if self.cluster is not None:
            files.append(("cluster", "=", self.cluster))
        rows = self.table.to_pyarrow_dataset(file_pruning_predicate=files)
        time = pc.field("time")
        chosen = [(time >= first) & (time <= last) for first, last in times]
        connection.register("stored", rows.filter(functools.reduce(operator.or_, chosen)))
        return StoredRows("stored", {})


def _time(seconds: float) -> datetime:
    return datetime.fromtimestamp(max(0.0, min(seconds, _MAX_SECONDS)), UTC)
