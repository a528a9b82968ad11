"""Follows the directory of Slurm's plug-in acct_gather_profile/hdf5: new samples become metrics.

A file is read again when its size or modification time changes, so that samples of running steps
are sent as soon as the plug-in's file contains them. It is identified by device and inode: a step
that is restarted on the same node has a new file.
"""

import asyncio
import functools
import logging
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import msgspec

from ccpipe.config import Interval, Site
from ccpipe.errors import ConfigError, DataError
from ccpipe.formats.lineprotocol import Lines, to_lines
from ccpipe.formats.slurm_profile.extract import samples
from ccpipe.formats.slurm_profile.hdf5 import LiveProfileError, Records
from ccpipe.formats.slurm_profile.names import parse_file_name
from ccpipe.formats.slurm_profile.reader import open_profile
from ccpipe.formats.slurm_profile.table import RowsInMemory, Table
from ccpipe.pipeline import Batch, Source, wait_for_event
from ccpipe.pipeline.state import StateStore, StateTable

log = logging.getLogger(__name__)

MAX_FILES = 100_000
"""Maximum number of files remembered."""


class SentRows(msgspec.Struct):
    """Position up to which a file was sent."""

    rows: dict[str, int] = {}
    """By table path."""


class _TableTail:
    """The rows of a table from some index on."""

    def __init__(self, table: Table, start: int) -> None:
        self._source, self._start = table.source, start
        self.dtype = table.source.dtype

    def __len__(self) -> int:
        return max(0, len(self._source) - self._start)

    def read(self, start: int, stop: int) -> Records:
        return self._source.read(self._start + start, self._start + stop)


class Hdf5Dir(Source[Lines]):
    """Publishes the samples of node-step files, each once, like ``ccpipe step --publish``."""

    gives = Lines

    def __init__(
        self,
        *,
        site: Site,
        dir: str,  # noqa: A002 - the key in recipes
        poll_interval: Interval = Interval(10),  # noqa: B008 - immutable
        state_file: str = "",
        follow: bool = True,
        batch_size: int = 1000,
    ) -> None:
        """Choose the directory.

        Parameters
        ----------
        dir
            ``ProfileHDF5Dir`` of acct_gather.conf, which contains a directory per user.
        poll_interval
            Polling interval.
        state_file
            File on a local disk that records what was sent. Without it, everything in the directory
            is sent again after a restart.
        follow
            Wait for new data; otherwise the source ends when everything was sent.
        batch_size
            Maximum number of samples in one batch.

        """
        if batch_size < 1:
            raise ConfigError(f"batch_size is {batch_size}: it must be positive")
        self.site = site
        self.directory = Path(dir).expanduser()
        self.poll_interval = float(poll_interval)
        self.follow = follow
        self.batch_size = batch_size
        self._state = StateStore(state_file)
        self._sent: StateTable[str, SentRows] = self._state.table(
            "hdf5_dir", str, SentRows, maximum=MAX_FILES
        )
        self._given: dict[str, dict[str, int]] = {}
        """Rows handed over, acknowledged or not, by file and table."""
        self._seen: dict[str, tuple[int, int]] = {}
        """Size and modification time of each file when it was last read."""
        self._reported: dict[str, str] = {}
        self._stopped = asyncio.Event()

    async def check(self) -> None:
        if not self.directory.is_dir():
            raise ConfigError(f"dir: {self.directory} is not a directory")

    async def __aexit__(self, *exit_: object) -> None:
        self._state.close()

    def stop(self) -> None:
        self._stopped.set()

    async def batches(self) -> AsyncIterator[Batch[Lines]]:
        await self.check()
        self._state.open()
        while not self._stopped.is_set():
            files = await asyncio.to_thread(lambda: list(self._changed()))
            for key, path, stat in files:
                batches = self._batches(key, path)
                while not self._stopped.is_set():
                    batch = await asyncio.to_thread(next, batches, None)
                    if batch is None:
                        self._seen[key] = stat
                        break
                    yield batch
            if not self.follow:
                return
            await wait_for_event(self._stopped, self.poll_interval)

    def _changed(self) -> Iterator[tuple[str, Path, tuple[int, int]]]:
        known = set()
        for path in sorted(self.directory.glob("**/*.h5")):
            try:
                stat = path.stat()
            except OSError:
                continue  # merged and deleted
            if parse_file_name(path.name) is None:
                continue  # a job file, whose rows are also in other files
            key = f"{stat.st_dev}:{stat.st_ino}:{path.name}"
            known.add(key)
            if self._seen.get(key) != (stat.st_size, stat.st_mtime_ns):
                yield key, path, (stat.st_size, stat.st_mtime_ns)
        for key in self._seen.keys() - known:
            del self._seen[key]
            self._given.pop(key, None)
            self._reported.pop(key, None)

    def _batches(self, key: str, path: Path) -> Iterator[Batch[Lines]]:
        if key not in self._given:
            sent = self._sent.get(key)
            self._given[key] = dict(sent.rows) if sent else {}
        try:
            with open_profile(path) as profile:
                for damage in profile.damage:
                    self._report(key, str(damage))
                for table in profile.tables:
                    yield from self._rest(key, path, table)
        except (LiveProfileError, FileNotFoundError):
            return  # still empty, or merged and deleted
        except (DataError, OSError) as error:
            self._report(key, str(error))

    def _rest(self, key: str, path: Path, table: Table) -> Iterator[Batch[Lines]]:
        done = self._given[key].get(table.path, 0)
        rest = Table(table.node_step, table.series, _TableTail(table, done), task=table.task)
        for rows in rest.blocks(self.batch_size):
            done += len(rows)
            self._given[key][table.path] = done
            part = Table(table.node_step, table.series, RowsInMemory(rows), task=table.task)
            metrics = [one for sample in samples([part], self.site.cluster) for one in sample]
            ack = functools.partial(self._acknowledge, key, table.path, done)
            yield Batch(to_lines(metrics), ack, f"{path}{table.path}")

    def _report(self, key: str, text: str) -> None:
        if self._reported.get(key) != text:
            self._reported[key] = text
            log.warning("%s", text)

    async def _acknowledge(self, key: str, table: str, rows: int) -> None:
        sent = self._sent.get(key) or SentRows()
        self._sent.put(key, SentRows({**sent.rows, table: rows}))
        self._state.commit(is_durable=True)
