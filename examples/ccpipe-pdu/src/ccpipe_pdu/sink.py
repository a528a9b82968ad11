"""A CSV file for each day."""

import asyncio
import csv
import os
from collections import defaultdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

from ccpipe import ConfigError, Duration, Limits, Lines, RejectedError, Sink, UnavailableError


class DailyCsvSink(Sink[Lines]):
    """Appends metrics to a file for each day: node, metric, part, value, time."""

    takes = Lines

    def __init__(self, *, directory: Path, interval: Duration = Duration(1)) -> None:
        """Take the options.

        Parameters
        ----------
        directory
            An existing directory for the files.
        interval
            Maximum time between two writes.

        """
        self.directory = directory
        self.limits = Limits(max_wait=interval)

    async def __aenter__(self) -> Self:
        """Check the directory."""
        if not self.directory.is_dir():
            raise ConfigError(f"directory: {self.directory}: not a directory")
        return self

    async def write(self, records: Lines) -> None:
        """Append the records and sync the files; raises RejectedError for text."""
        texts = [row for row, each in enumerate(records) if isinstance(each.value, str)]
        if texts:
            raise RejectedError("only numbers are stored", texts)
        try:
            await asyncio.to_thread(self._append, records)
        except OSError as error:
            raise UnavailableError(f"{self.directory}: {error.strerror}") from None

    def _append(self, records: Lines) -> None:
        rows: dict[str, list[tuple[object, ...]]] = defaultdict(list)
        for each in records:
            time = datetime.fromtimestamp((each.time or 0) / 1e9, UTC)
            part = each.tags.get("stype-id", "")
            row = (each.tags.get("hostname", ""), each.name, part, each.value, time.isoformat())
            rows[f"{time:%Y-%m-%d}.csv"].append(row)
        for name, group in rows.items():
            with (self.directory / name).open("a", newline="") as file:
                csv.writer(file).writerows(group)
                file.flush()
                os.fsync(file.fileno())
