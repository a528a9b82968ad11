"""Grid Engine's accounting files, followed for ever: each record becomes one event.

At least once: the checkpoint moves only when the broker has what was read. Exactly once: a record
that is read again after a crash makes the very same event, because its origin (the file's id and
the offset) is in it. Publish one event a message (``lines = 1`` of the sink ``nats``), so that
each has its own message id.
"""

import asyncio
import fcntl
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import IO, Literal, Self

import msgspec

from ccpipe.config import Duration, Interval, Site
from ccpipe.errors import ConfigError, UnavailableError
from ccpipe.formats.gridengine import Accounting, read
from ccpipe.formats.gridengine.event import to_event
from ccpipe.message import Message
from ccpipe.pipeline import Batch, DeadLetter, wait_for_event
from ccpipe.sources.rotation import Follower, Progress, Stretch


class AccountingFile:
    """Follows ``accounting`` and ``accounting.jsonl``, through rotation and restarts.

    Only one process at a time may use a checkpoint.
    """

    def __init__(
        self,
        *,
        site: Site,
        paths: list[str],
        checkpoint: str,
        begin: Literal["start", "end", "oldest"] = "start",
        poll: Interval = Interval(5),  # noqa: B008 - frozen, as any float
        grace: Duration = Duration(30),
        command_line: bool = False,
        once: bool = False,
    ) -> None:
        """Take what to follow.

        Parameters
        ----------
        paths
            The files, of which some may be missing: usually both of ``$SGE_ROOT/<cell>/common``.
        checkpoint
            The file that remembers how far we are; its folder must be there.
        begin
            Where to begin without a checkpoint: at the start or the end of the current files, or
            with the oldest rotated ones.
        poll
            How often to look for new lines.
        grace
            How long a rotated file must have been quiet before it is left for the next one.
        command_line
            Whether to send ``submit_cmd_line``, which may hold secrets.
        once
            Whether to end when everything is read.

        Raises
        ------
        ConfigError
            where there is no path, or one that is there twice.

        """
        if not paths or len(set(paths)) < len(paths):
            raise ConfigError(f"paths is {paths}: name one file at least, and none twice")
        self.site = site
        self.paths = paths
        self.checkpoint = Checkpoint(Path(checkpoint))
        self.begin = begin
        self.poll = float(poll)
        self.grace = 0.0 if once else float(grace)
        self.command_line = command_line
        self.once = once
        self._stopped = asyncio.Event()

    async def check(self) -> None:
        """Say whether the files' folders are there, for ``ccpipe validate``."""
        for path in map(Path, self.paths):
            if not path.parent.is_dir():
                raise UnavailableError(f"{path.parent} is not a folder that we can see")

    def stop(self) -> None:
        """End between two batches."""
        self._stopped.set()

    async def __aenter__(self) -> Self:
        """Read the checkpoint, and keep others from it."""
        self.checkpoint.open()
        self._followers = [
            Follower(Path(path), self.checkpoint.progress.get(path, Progress()), grace=self.grace)
            for path in self.paths
        ]
        for path, follower in zip(self.paths, self._followers, strict=True):
            if path not in self.checkpoint.progress:
                await asyncio.to_thread(self._begin, follower)
                self.checkpoint.progress[path] = follower.progress
        self.checkpoint.save()
        return self

    async def __aexit__(self, *exit_: object) -> None:
        """Write the checkpoint and close everything."""
        for follower in self._followers:
            follower.close()
        self.checkpoint.close()

    def _begin(self, follower: Follower) -> None:
        if self.begin == "end":
            follower.skip_all()
        elif self.begin == "start":
            follower.skip_rotated()

    async def __aiter__(self) -> AsyncIterator[Batch]:
        """Yield batches, one for each stretch of a file, until stopped."""
        while not self._stopped.is_set():
            idle = True
            for path, follower in zip(self.paths, self._followers, strict=True):
                stretch = await asyncio.to_thread(follower.step)
                if stretch is not None:
                    idle = False
                    yield self._batch(path, stretch)
                if self._stopped.is_set():
                    return
            if idle:
                if self.once:
                    return
                self.checkpoint.save()
                await wait_for_event(self._stopped, self.poll)

    def _batch(self, path: str, stretch: Stretch) -> Batch:
        reading = read(stretch.payload, file=stretch.file, offset=stretch.offset, line=stretch.line)
        return Batch(
            self._events(reading.records),
            self._acknowledge(path, stretch.progress),
            path,
            [
                DeadLetter(bad.original, bad.reason, path, bad.line, bad.offset)
                for bad in reading.rejected
            ],
            len(stretch.payload),
        )

    def _events(self, records: Sequence[Accounting]) -> list[Message]:
        if not self.command_line:
            records = [msgspec.structs.replace(record, submit_cmd_line=None) for record in records]
        cluster, hostname = self.site.cluster, self.site.hostname
        return [to_event(record, cluster=cluster, hostname=hostname) for record in records]

    def _acknowledge(self, path: str, progress: Progress) -> Callable[[], Awaitable[None]]:
        async def acknowledge() -> None:
            self.checkpoint.progress[path] = progress
            self.checkpoint.save_now_and_then()

        return acknowledge


class Checkpoint:
    """How far each path was read, in a file that is replaced as a whole."""

    EVERY = 0.5
    """Seconds between two writes, while there is much to read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.progress: dict[str, Progress] = {}
        self._saved: dict[str, Progress] = {}
        self._next = 0.0
        self._lock: IO[bytes] | None = None

    def open(self) -> None:
        """Read the file, if there is one, and lock it.

        Raises
        ------
        ConfigError
            where it cannot be read or written, or another process uses it.

        """
        try:
            self._lock = self.path.with_name(f"{self.path.name}.lock").open("ab")
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self.progress = msgspec.json.decode(self.path.read_bytes(), type=dict[str, Progress])
        except FileNotFoundError:
            if self._lock is None:
                raise ConfigError(f"checkpoint: {self.path.parent} is not there") from None
        except BlockingIOError:
            self._release()
            raise ConfigError(f"checkpoint: another process uses {self.path}") from None
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
            self._release()
            raise ConfigError(f"checkpoint: {self.path}: {error}") from None

    def save_now_and_then(self) -> None:
        """Write the file unless it was written a moment ago."""
        if time.monotonic() >= self._next:
            self.save()

    def save(self) -> None:
        """Write what was acknowledged; nothing else ever gets into the file.

        Raises
        ------
        UnavailableError
            where the disk does not take it.

        """
        if self.progress == self._saved:
            return
        self._next = time.monotonic() + self.EVERY
        new = self.path.with_name(f"{self.path.name}.new")
        try:
            with new.open("wb") as file:
                file.write(msgspec.json.encode(self.progress))
                file.flush()
                os.fsync(file.fileno())
            new.replace(self.path)
        except OSError as error:
            raise UnavailableError(f"checkpoint: {self.path}: {error}") from None
        self._saved = dict(self.progress)

    def close(self) -> None:
        """Write the last state, and let others in."""
        try:
            self.save()
        finally:
            self._release()

    def _release(self) -> None:
        if self._lock is not None:
            self._lock.close()
            self._lock = None
