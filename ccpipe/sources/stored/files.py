"""Files as a source that resumes where it stopped."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Literal

from ccpipe.errors import MissingInputError
from ccpipe.formats.lineprotocol import Lines
from ccpipe.pipeline import Batch
from ccpipe.sources.file import FileSource, Format, sizes_of
from ccpipe.sources.stored.backfill import EARLIEST, LATEST, BackfillCheckpoint, BackfillSelection

NOTE_SECONDS = 1.0
"""Interval between writes of the checkpoint; so much is written again after a crash."""

_ALL = BackfillSelection(EARLIEST, LATEST)


class FilesSource(FileSource):
    """Yields the selected lines of files in order; acknowledged ones are recorded in a file.

    The checkpoint counts lines, valid or not, over all files together.
    """

    def __init__(
        self,
        paths: Sequence[Path],
        selection: BackfillSelection = _ALL,
        *,
        name: str,
        format: Format | Literal["auto"] = "auto",  # noqa: A002 - as in the sink
        checkpoint: Path | None = None,
        rate: int = 0,
        on_progress: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Read a selection; see ``BackfillSource``, and MissingInputError if a file is missing."""
        super().__init__(paths=[str(path) for path in paths], format=format, rate=rate)
        for path in paths:
            if not path.is_file():
                raise MissingInputError(f"{path}: no such file")
        self.selection = selection
        self.on_progress = on_progress
        self._checkpoint = BackfillCheckpoint(checkpoint, name, selection, 0)
        self._noted = time.monotonic()

    async def __aexit__(self, *exit_: object) -> None:
        """Record what was written in the last second."""
        await asyncio.to_thread(self._checkpoint.write)

    async def batches(self) -> AsyncIterator[Batch[Lines]]:
        """Yield the lines that are not written yet; raises as ``FileSource`` does."""
        self._sizes = sizes_of(self.paths)
        lines, done = 0, self._checkpoint.state.done
        for number, path in enumerate(self.paths, 1):
            blocks = self._blocks(path)
            while (found := await self._next(blocks)) is not None:
                lines += len(found) + len(found.rejected)
                if lines > done:
                    yield Batch(self._selected(found), self._noting(lines, number), path)
                    await self._pause(len(found))
            if self._stopped.is_set():
                return

    def _selected(self, lines: Lines) -> Lines:
        """Return the lines of the selected times and nodes; without a timestamp only if all are."""
        start, end, nodes = self.selection.start, self.selection.end, self.selection.nodes
        if self.selection == _ALL:
            return lines
        series = lines.table.series
        chosen = {
            code
            for code in set(lines.series)
            if not nodes or series[code].tags.get("hostname") in nodes
        }
        pairs = zip(lines.series, lines.times, strict=True)
        return lines.take([code in chosen and start <= when < end for code, when in pairs])

    def _noting(self, lines: int, number: int) -> Callable[[], Awaitable[None]]:
        async def note() -> None:
            self._checkpoint.state.done = lines
            if time.monotonic() >= self._noted + NOTE_SECONDS:
                self._noted = time.monotonic()
                await asyncio.to_thread(self._checkpoint.write)
            count = f"{lines:,}".replace(",", " ")
            self.on_progress(f"file {number} of {len(self.paths)}, {count} lines are written")

        return note
