"""Jobanalyzer's directory tree of Sonar's envelopes: a range of days, or appended data."""

import asyncio
import contextlib
import fcntl
import functools
import logging
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import BinaryIO

from ccpipe.config import Interval
from ccpipe.errors import ConfigError, MissingInputError
from ccpipe.formats.sonar import Decoder, Envelopes, ReadProfile
from ccpipe.formats.sonar.file_tree import TreeFile, list_days, list_files
from ccpipe.pipeline import Batch, Source, wait_for_event
from ccpipe.pipeline.state import StateStore, StateTable

log = logging.getLogger(__name__)

BLOCK = 2**18
"""Bytes read at once."""
OPEN_DAYS = 3
"""Number of days before today that are still checked while the tree is followed."""
MAX_FILES = 100_000
"""Maximum number of files whose position is remembered."""

_FLOOR = "floor"


class TreeSource(Source[Envelopes]):
    """Reads the envelopes of a tree, day by day, and those appended later."""

    gives = Envelopes

    def __init__(
        self,
        *,
        dir: str,  # noqa: A002 - the key in recipes
        cluster_directories: bool = True,
        start: str = "",
        end: str = "",
        follow: bool = False,
        poll_interval: Interval = Interval(10),  # noqa: B008 - immutable
        state_file: str = "",
        profile: ReadProfile = "auto",
        strict: bool = False,
    ) -> None:
        """Choose the tree and the days.

        Parameters
        ----------
        dir
            The root: for Jobanalyzer the directory ``data`` of its directory.
        cluster_directories
            One directory per cluster; otherwise the root contains the years.
        start, end
            First and last day to read, such as ``2025-02-20``, in UTC; default: all.
        follow
            Wait for new data; otherwise the source ends when everything was read.
        poll_interval
            Polling interval.
        state_file
            For ``follow``: file on a local disk that records what was read. Without it, everything
            from ``start`` on is read again after a restart.
        profile
            Number encoding: ``sonar``, ``spec``, or ``auto`` to choose by each envelope's producer.
        strict
            Reject envelopes that violate the specification.

        """
        if state_file and not follow:
            raise ConfigError(
                "state_file is for follow = true: a range of days is read from its start"
            )
        self.root = Path(dir).expanduser()
        self.cluster_directories = cluster_directories
        self.start = _day("start", start) or date.min
        self.end = _day("end", end) or date.max
        if self.start > self.end:
            raise ConfigError(f"start is {start}, after end, {end}")
        self.follow = follow
        self.poll_interval = float(poll_interval)
        self.profile: ReadProfile = profile
        self.strict = strict
        self._state = StateStore(state_file)
        self._done: StateTable[str, int] = self._state.table("tree", str, int, maximum=MAX_FILES)
        """Bytes of each file that were acknowledged."""
        self._floor: StateTable[str, str] = self._state.table("tree_days", str, str, maximum=1)
        """The first day that may still get new data."""
        self._read: dict[str, int] = {}
        """Bytes of each file that were handed over, acknowledged or not."""
        self._pending: Counter[date] = Counter()
        """Unacknowledged batches of each day."""
        self._failed: dict[TreeFile, str] = {}
        self._stopped = asyncio.Event()

    async def check(self) -> None:
        if not self.root.is_dir():
            raise ConfigError(f"dir: {self.root} is not a directory")

    async def __aexit__(self, *exit_: object) -> None:
        self._state.close()

    def stop(self) -> None:
        self._stopped.set()

    async def batches(self) -> AsyncIterator[Batch[Envelopes]]:
        """Yield new envelopes, file by file, earlier days first.

        Raises MissingInputError if the directory is missing, or at the end if files are unreadable.
        """
        if not self.root.is_dir():
            raise MissingInputError(f"{self.root} is not a directory")
        self._state.open()
        while not self._stopped.is_set():
            for day in await asyncio.to_thread(self._days):
                for file in await asyncio.to_thread(self._files, day):
                    batches = self._batches(file)
                    while batch := await asyncio.to_thread(next, batches, None):
                        self._pending[day] += 1
                        yield batch
                        if self._stopped.is_set():
                            return
                self._raise_floor(day)
            if not self.follow:
                break
            await wait_for_event(self._stopped, self.poll_interval)
        if self._failed and not self.follow:
            reason = next(iter(self._failed.values()))
            raise MissingInputError(f"{len(self._failed)} files could not be read: {reason}")

    def _days(self) -> list[date]:
        days = list_days(self.root, cluster_directories=self.cluster_directories)
        first = max(self.start, self._first_open_day())
        return [day for day in days if first <= day <= self.end]

    def _files(self, day: date) -> list[TreeFile]:
        return list_files(self.root, day, cluster_directories=self.cluster_directories)

    def _batches(self, file: TreeFile) -> Iterator[Batch[Envelopes]]:
        try:
            with file.path.open("rb") as stream:
                yield from self._rest(file, stream)
        except OSError as error:
            reason = f"{file.path}: {error.strerror}"
            if self._failed.get(file) != reason:
                self._failed[file] = reason
                log.error("%s", reason)  # noqa: TRY400 - the reason is complete
        else:
            self._failed.pop(file, None)

    def _rest(self, file: TreeFile, stream: BinaryIO) -> Iterator[Batch[Envelopes]]:
        begin = self._position(file, stream)
        stream.seek(begin)
        decoder = Decoder(strict=self.strict, profile=self.profile)
        origin = f"{file.path} from byte {begin}" if begin else str(file.path)
        # A file that is still being written may end in an incomplete envelope.
        is_final = not self.follow or file.day < _today() - timedelta(OPEN_DAYS)
        before = 0
        block = b"begin"
        while block:
            block = _read_block(stream)
            if not block and not is_final:
                return
            found = decoder.feed(block) if block else decoder.finish()
            end = decoder.complete
            self._read[file.key] = begin + end
            if found or found.rejected:
                yield self._batch(file, found, begin + end, size=end - before, origin=origin)
            before = end

    def _batch(
        self, file: TreeFile, found: Envelopes, end: int, *, size: int, origin: str
    ) -> Batch[Envelopes]:
        found.size = size
        return Batch(found, functools.partial(self._acknowledge, file, end), origin)

    def _position(self, file: TreeFile, stream: BinaryIO) -> int:
        """Return where to continue; the start if the file was replaced by a shorter one."""
        begin = self._read.get(file.key, self._done.get(file.key) or 0) if self.follow else 0
        if begin > stream.seek(0, 2):
            log.warning(
                "%s: shorter than the part already read: reading it from the beginning", file.path
            )
            return 0
        return begin

    async def _acknowledge(self, file: TreeFile, end: int) -> None:
        self._pending[file.day] -= 1
        if self.follow and file.day >= self._first_open_day():
            self._done.put(file.key, end)
            self._state.commit(is_durable=True)

    # Days that are complete, whose files need not be remembered

    def _first_open_day(self) -> date:
        return date.fromisoformat(self._floor.get(_FLOOR) or date.min.isoformat())

    def _raise_floor(self, day: date) -> None:
        """Complete the days up to one that was read, except recent and unfinished ones."""
        if not self.follow:
            self._read.clear()
            return
        unfinished = [day for day, count in self._pending.items() if count]
        failed = [file.day for file in self._failed]
        floor = min([day + timedelta(1), _today() - timedelta(OPEN_DAYS), *unfinished, *failed])
        if floor <= self._first_open_day():
            return
        self._floor.put(_FLOOR, floor.isoformat())
        for key in [key for key in self._done if key < floor.isoformat()]:
            self._done.pop(key)
        self._read = {key: at for key, at in self._read.items() if key >= floor.isoformat()}
        self._pending = +self._pending
        self._state.commit(is_durable=True)


def _read_block(stream: BinaryIO) -> bytes:
    """Read under a lock, as another ccpipe may remove an incomplete write."""
    with contextlib.suppress(OSError):  # not all file systems support locks
        fcntl.flock(stream, fcntl.LOCK_SH)
    try:
        return stream.read(BLOCK)
    finally:
        with contextlib.suppress(OSError):
            fcntl.flock(stream, fcntl.LOCK_UN)


def _today() -> date:
    return datetime.now(UTC).date()


def _day(option: str, text: str) -> date | None:
    try:
        return date.fromisoformat(text) if text else None
    except ValueError:
        raise ConfigError(f"{option}: not a day: {text!r} (expected e.g. 2025-02-20)") from None
