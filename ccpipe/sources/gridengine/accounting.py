"""Follows Grid Engine's accounting files: each record is a job, or a run or PE task of one.

So is each start or deletion in the reporting file, if that is followed too.

At least once: the checkpoint moves only after everything made of a record is acknowledged. Exactly
once: a record has its origin (the file's id and the offset), by which one that is read again after
a crash is recognised.
"""

import asyncio
import fcntl
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import IO, Literal, Self

import msgspec

from ccpipe.atomic_file import replace_content
from ccpipe.config import Duration, Interval, Site, make_directory_of
from ccpipe.errors import ConfigError, UnavailableError
from ccpipe.formats.gridengine import Accounting, read
from ccpipe.formats.gridengine.reader import RejectedAccountingLine
from ccpipe.formats.gridengine.reporting import JobLog, read_job_log
from ccpipe.jobs import Jobs
from ccpipe.pipeline import Batch, Source, wait_for_event
from ccpipe.sources.follow import Chunk, FileProgress, Follower
from ccpipe.translate.gridengine.jobs import job_of

log = logging.getLogger(__name__)


class AccountingFile(Source[Jobs]):
    """Follows ``accounting`` and ``accounting.jsonl`` through rotation and restarts.

    Only one process at a time may use a state file.
    """

    gives = Jobs

    def __init__(
        self,
        *,
        site: Site,
        paths: list[str],
        state_file: str,
        reporting_file: str = "",
        read_from: Literal["start", "end", "oldest"] = "start",
        poll_interval: Interval = Interval(5),  # noqa: B008 - frozen, as any float
        rotation_timeout: Duration = Duration(30),
        command_line: bool = False,
        follow: bool = True,
    ) -> None:
        """Set the files to follow.

        Parameters
        ----------
        paths
            The files, usually both of ``$SGE_ROOT/<cell>/common``; some may be missing.
        state_file
            The file with the positions; its directory is created if missing.
        reporting_file
            The file with starts and deletions in ``job_log`` lines (``reporting_params`` with
            ``reporting=true joblog=true``). Its ``acct`` lines are read only if it is also in
            `paths`.
        read_from
            Where to begin without a state file: at the start or the end of the current files, or
            with the oldest rotated ones. The reporting file begins at its end unless with the
            oldest: a past start may have no end that is still to be read.
        poll_interval
            Interval between two checks for new lines.
        rotation_timeout
            Time without a write before a rotated file is left for the next one.
        command_line
            Whether to send ``submit_cmd_line``, which may contain secrets.
        follow
            Wait for new data; otherwise the source ends when everything was read.

        """
        if not paths or len(set(paths)) < len(paths):
            raise ConfigError(f"paths is {paths}: expected at least one file, each only once")
        self.site = site
        self.paths = paths
        self.reporting = reporting_file
        self.checkpoint = AccountingCheckpoint(Path(state_file))
        self.read_from = read_from
        self.poll_interval = float(poll_interval)
        self.rotation_timeout = float(rotation_timeout) if follow else 0.0
        self.command_line = command_line
        self.follow = follow
        self._followers: dict[str, Follower] = {}
        self._reached: dict[str, int] = {}  # latest time in a path's lines
        self._stopped = asyncio.Event()
        self._is_unsaved = False  # of the checkpoint, if the disk is full

    async def check(self) -> None:
        for path in map(Path, self._all_paths()):
            if not path.parent.is_dir():
                raise UnavailableError(f"{path.parent} is not an accessible directory")

    def stop(self) -> None:
        self._stopped.set()

    async def __aenter__(self) -> Self:
        self.checkpoint.open()
        for path in self._all_paths():
            progress = self.checkpoint.progress.get(path, FileProgress())
            follower = Follower(Path(path), progress, grace=self.rotation_timeout)
            self._followers[path] = follower
            if path not in self.checkpoint.progress:
                await asyncio.to_thread(self._begin, path, follower)
                self.checkpoint.progress[path] = follower.progress
        self.checkpoint.save()
        return self

    async def __aexit__(self, *exit_: object) -> None:
        for follower in self._followers.values():
            follower.close()
        self.checkpoint.close()

    def _all_paths(self) -> list[str]:
        return list(dict.fromkeys([*self.paths, *([self.reporting] if self.reporting else [])]))

    def _begin(self, path: str, follower: Follower) -> None:
        is_for_starts = path not in self.paths
        if self.read_from == "end" or (is_for_starts and self.read_from != "oldest"):
            follower.skip_all()
        elif self.read_from == "start":
            follower.skip_rotated()

    async def batches(self) -> AsyncIterator[Batch[Jobs]]:
        while not self._stopped.is_set():
            batch = await self._next()
            if batch is not None:
                yield batch
            elif not self.follow:
                return
            else:
                self._save()
                await wait_for_event(self._stopped, self.poll_interval)

    def _save(self) -> None:
        """Write the checkpoint; on failure, such as a full disk, retry with the next poll."""
        try:
            self.checkpoint.save()
        except UnavailableError as error:
            if not self._is_unsaved:
                log.warning("%s; retrying, and reading on", error)
            self._is_unsaved = True
        else:
            self._is_unsaved = False

    async def _next(self) -> Batch[Jobs] | None:
        """Read the file that is furthest behind; None if there is nothing new.

        So a start is read at about the same point as its job's end, even with a large backlog.
        """
        for path in sorted(self._followers, key=lambda path: self._reached.get(path, 0)):
            if chunk := await asyncio.to_thread(self._followers[path].step):
                batch = self._batch(path, chunk)
                times = (job.end or job.start or job.submit for job in batch.records)
                self._reached[path] = max(times, default=0) or self._reached.get(path, 0)
                return batch
        return None

    def _batch(self, path: str, chunk: Chunk) -> Batch[Jobs]:
        found, rejected = list[Accounting | JobLog](), list[RejectedAccountingLine]()
        payload, file = chunk.payload, chunk.file
        offset, line = chunk.offset, chunk.line
        if path in self.paths:
            reading = read(payload, file=file, offset=offset, line=line)
            found, rejected = [*map(self._without_secrets, reading.records)], reading.rejected
        if path == self.reporting:
            logs, bad_lines = read_job_log(payload, file=file, offset=offset, line=line)
            found += logs
            rejected += bad_lines
        jobs = (job_of(record, self.site.cluster) for record in found)
        ack = self._acknowledge(path, chunk.progress)
        return Batch(Jobs(jobs, rejected=rejected), ack, path)

    def _without_secrets(self, record: Accounting) -> Accounting:
        if self.command_line or record.submit_cmd_line is None:
            return record
        return msgspec.structs.replace(record, submit_cmd_line=None)

    def _acknowledge(self, path: str, progress: FileProgress) -> Callable[[], Awaitable[None]]:
        async def acknowledge() -> None:
            self.checkpoint.progress[path] = progress
            self.checkpoint.save_if_due()

        return acknowledge


class AccountingCheckpoint:
    """The progress of each path, in a file that is replaced atomically."""

    EVERY = 0.5
    """Minimum seconds between two writes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.progress: dict[str, FileProgress] = {}
        self._saved: dict[str, FileProgress] = {}
        self._next = 0.0
        self._lock: IO[bytes] | None = None

    def open(self) -> None:
        """Read the file, if it exists, and lock it.

        Raises ConfigError if it cannot be read or written, or is already in use, and
        CreateError if its directory is missing and cannot be created, or is not writable.
        """
        make_directory_of("state_file", self.path)
        try:
            self._lock = self.path.with_name(f"{self.path.name}.lock").open("ab")
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self.progress = msgspec.json.decode(
                self.path.read_bytes(), type=dict[str, FileProgress]
            )
        except FileNotFoundError:
            pass  # it is written with the first position
        except BlockingIOError:
            self._release()
            raise ConfigError(f"state_file: {self.path} is already in use") from None
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
            self._release()
            raise ConfigError(f"state_file: {self.path}: {error}") from None

    def save_if_due(self) -> None:
        if time.monotonic() >= self._next:
            self.save()

    def save(self) -> None:
        """Write the acknowledged progress; raises UnavailableError if it cannot be written."""
        if self.progress == self._saved:
            return
        self._next = time.monotonic() + self.EVERY
        try:
            replace_content(self.path, msgspec.json.encode(self.progress))
        except OSError as error:
            raise UnavailableError(f"state_file: {self.path}: {error}") from None
        self._saved = dict(self.progress)

    def close(self) -> None:
        try:
            self.save()
        finally:
            self._release()

    def _release(self) -> None:
        if self._lock is not None:
            self._lock.close()
            self._lock = None
