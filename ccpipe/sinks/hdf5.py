"""Profiles of Slurm jobs as HDF5 files, from samples on the bus.

Samples of a step on a node are collected in a file of line protocol; when the step has ended they
are converted, atomically, to the file that Slurm's plug-in would have written.
"""

import asyncio
import contextlib
import logging
import os
import shutil
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Self

from ccpipe.config import Duration, Interval
from ccpipe.errors import DataError, RejectedError
from ccpipe.formats.lineprotocol import Lines, decode, encode
from ccpipe.formats.slurm_metrics import Value, from_metric
from ccpipe.formats.slurm_profile.names import NodeStepName, parse_file_name
from ccpipe.formats.slurm_profile.reader import Profile, open_profile
from ccpipe.formats.slurm_profile.series import SeriesField, series_type
from ccpipe.formats.slurm_profile.table import NodeStep
from ccpipe.formats.slurm_profile.writer import NodeStepWriter, keep_aside
from ccpipe.message import Kind, Message
from ccpipe.pipeline import Limits, Sink
from ccpipe.process.background import background
from ccpipe.sinks.disk import (
    AppendFile,
    check_directory,
    disk_errors,
    make_directory,
    sync_directory,
)

log = logging.getLogger(__name__)

SPOOL = ".gathering"

BLOCK_BYTES = 2**20
WINDOW = 64
"""Samples of a table kept in memory to sort late ones and drop duplicates."""

_Key = tuple[str, int | None]
_Row = dict[str, float]


class Hdf5Sink(Sink[Lines]):
    """Writes the profile of each step on each node as a file that sh5util reads.

    It takes the metrics of ``ccpipe step --publish`` and its event ``step``, which marks the end
    of a step. A step also counts as ended after `idle_timeout` without a sample.
    """

    takes = Lines

    limits = Limits(max_records=50_000, max_wait=5.0, write_timeout=0.0)

    def __init__(
        self,
        *,
        dir: str,  # noqa: A002 - the key in recipes
        idle_timeout: Interval = Interval(600),  # noqa: B008 - immutable
        last_sample_timeout: Duration = Duration(5),
    ) -> None:
        """Choose the directory.

        Parameters
        ----------
        dir
            The output directory; created if missing.
        idle_timeout
            A step without a sample for this long is considered ended.
        last_sample_timeout
            How long to wait for the last samples after a step's end event.

        """
        self.directory = Path(dir).expanduser()
        self.spool = self.directory / SPOOL
        self.idle_timeout = float(idle_timeout)
        self.last_sample_timeout = float(last_sample_timeout)
        self._due: dict[NodeStepName, float] = {}
        self._busy = threading.Lock()  # collecting samples and writing the file exclude each other
        self._task: asyncio.Task[None] | None = None

    async def check(self) -> None:
        check_directory(self.directory)

    async def __aenter__(self) -> Self:
        """Resume the steps left by an earlier process; raises CreateError."""
        with disk_errors(self.spool, opening=True):
            await asyncio.to_thread(make_directory, self.spool)
        for path in self.spool.glob("*.lp"):
            if name := parse_file_name(f"{path.stem}.h5"):
                self._due[name] = time.monotonic() + self.idle_timeout
        self._task = background(self._keep_finishing(), "ccpipe-hdf5")
        return self

    async def __aexit__(self, *exit_: object) -> None:
        """Close; samples of running steps are kept for the next process."""
        assert self._task is not None
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def write(self, records: Lines) -> None:
        groups: dict[NodeStepName, list[Message]] = {}
        ended: set[NodeStepName] = set()
        bad: dict[int, str] = {}
        for index, record in enumerate(records):
            try:
                if is_end := (record.kind is Kind.EVENT and record.name == "step"):
                    ended.add(_name(record.tags))
                else:
                    from_metric(record)
                    groups.setdefault(_name(record.tags), []).append(record)
            except DataError as error:
                bad[index] = f"{'event step: ' if is_end else ''}{error}"
        if bad:
            raise RejectedError(next(iter(bad.values())), list(bad))
        with disk_errors(self.spool):
            await asyncio.to_thread(self._gather, groups)
        now = time.monotonic()
        self._due |= dict.fromkeys(groups, now + self.idle_timeout)
        self._due |= dict.fromkeys(ended, now + self.last_sample_timeout)

    def _gather(self, groups: dict[NodeStepName, list[Message]]) -> None:
        with self._busy:
            for name, messages in groups.items():
                with contextlib.closing(AppendFile(self._gathered(name))) as file:
                    file.append(encode(messages, precision="ns"))

    def _gathered(self, name: NodeStepName) -> Path:
        return self.spool / name.file_name.replace(".h5", ".lp")

    async def _keep_finishing(self) -> None:
        while True:
            now = time.monotonic()
            for name in [name for name, due in self._due.items() if due <= now]:
                due = self._due[name]
                try:
                    await asyncio.to_thread(self._finish, name)
                except (OSError, DataError) as error:
                    log.error("%s: %s; retrying", name.file_name, error)  # noqa: TRY400
                    self._due[name] = now + self.idle_timeout
                except Exception:  # the other steps go on
                    log.exception("%s; retrying", name.file_name)
                    self._due[name] = now + self.idle_timeout
                else:
                    if self._due.get(name) == due:
                        del self._due[name]
            await asyncio.sleep(min(1.0, self.last_sample_timeout or 0.1, self.idle_timeout))

    def _finish(self, name: NodeStepName) -> None:
        gathered, final = self._gathered(name), self.directory / name.file_name
        if not gathered.exists():
            return
        changed = gathered.stat().st_mtime_ns
        if final.exists() and final.stat().st_mtime_ns >= changed:
            gathered.unlink()  # killed after writing the file, before this line
            return
        is_late = final.exists() and _latest_gathered(gathered) <= _latest_row(final)
        draft = self.spool / f"{name.file_name}.draft"
        draft.unlink(missing_ok=True)
        if not is_late:
            assemble(gathered, draft, name)
        with self._busy:
            if gathered.stat().st_mtime_ns != changed:
                return  # new samples arrived: the step has not ended
            if is_late:
                self._set_aside(gathered)
                return
            keep_aside(final)
            draft.replace(final)
            sync_directory(self.directory)
            gathered.unlink()
        log.info("%s: complete", final)

    def _set_aside(self, gathered: Path) -> None:
        """Keep samples of a step whose file exists already, separately from it."""
        late = gathered.with_suffix(".late")
        with late.open("ab") as file, gathered.open("rb") as samples:
            shutil.copyfileobj(samples, file)
            file.flush()
            os.fsync(file.fileno())
        gathered.unlink()
        log.warning("%s: samples that are duplicates or too late for the file of their step", late)


def assemble(gathered: Path, path: Path, name: NodeStepName) -> None:
    """Write a node-step file from lines of its samples; raises OSError or EncodeError."""
    tables: dict[_Key, dict[int, _Row]] = {}
    written: dict[_Key, int] = {}
    writer: NodeStepWriter | None = None
    for value in _values(gathered):
        if writer is None:
            step = NodeStep(step=name.step, node=name.node, job=name.job)
            writer = NodeStepWriter(path, step, start=value.time / 10**9)
        key = (value.series, value.task)
        if value.time <= written.get(key, -1):
            continue  # redelivered after its row was written
        rows = tables.setdefault(key, {})
        rows.setdefault(value.time, {})[value.field] = value.value
        if len(rows) > WINDOW:
            written[key] = _append(writer, key, rows)
    if writer is None:
        return
    with writer:
        for key, rows in tables.items():
            while rows:
                _append(writer, key, rows)


def _latest_gathered(gathered: Path) -> float:
    return max((value.time for value in _values(gathered)), default=0) / 10**9


def _latest_row(path: Path) -> float:
    """Return the time of the latest row of a file; 0 if it has none or cannot be read."""
    try:
        with open_profile(path) as profile:
            tables = profile.tables if isinstance(profile, Profile) else ()
            times = (table.read()["EpochTime"] for table in tables)
            return max((float(each.max()) for each in times if len(each)), default=0.0)
    except (OSError, DataError):
        return 0.0


def _append(writer: NodeStepWriter, key: _Key, rows: dict[int, _Row]) -> int:
    oldest = min(rows)
    series, task = key
    fields = {field.name: field for field in series_type(series).fields}
    values = {name: _number(fields[name], value) for name, value in rows.pop(oldest).items()}
    writer.append(series, values, oldest / 10**9, task)
    return oldest


def _number(field: SeriesField, value: float) -> float:
    return round(value) if field.type is int else value


def _values(gathered: Path) -> Iterator[Value]:
    """Parse the lines of a file, block by block; a torn line was redelivered."""
    rest = b""
    with gathered.open("rb") as file:
        while block := file.read(BLOCK_BYTES):
            whole, _, rest = (rest + block).rpartition(b"\n")
            for message in decode(whole + b"\n", precision="ns"):
                yield from_metric(message)


def _name(tags: Mapping[str, str]) -> NodeStepName:
    """Return the name of a step's file; raises DataError if the tags do not identify a step."""
    job, step, node = (tags.get(tag, "") for tag in ("jobid", "stepid", "hostname"))
    if job.isascii() and job.isdecimal():
        name = NodeStepName(int(job), step, node)
        if parse_file_name(name.file_name) == name:
            return name
    raise DataError(f"job {job!r:.40}, step {step!r:.40}, node {node!r:.80} name no step of a job")
