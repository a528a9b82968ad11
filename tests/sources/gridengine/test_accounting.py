"""The follower of accounting files: events on a real broker, none lost and none twice."""

import asyncio
import contextlib
import random
import signal
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ccpipe.bus.nats.connection import Connection
from ccpipe.bus.nats.server import NatsServer
from ccpipe.bus.nats.source import NatsSource
from ccpipe.config import Duration, Interval, Site
from ccpipe.errors import ConfigError, CreateError, UnavailableError
from ccpipe.formats.gridengine import Accounting, Origin, encode_classic, read
from ccpipe.formats.gridengine.reporting import JobLog, read_job_log
from ccpipe.jobs import Job
from ccpipe.pipeline import Batch
from ccpipe.sources.gridengine.accounting import AccountingCheckpoint, AccountingFile
from ccpipe.telemetry import Telemetry
from ccpipe.translate.gridengine.jobs import from_event
from tests.conftest import eventually
from tests.paths import TEST_DATA
from tests.reading import Reader, read_all
from tests.sinks.conftest import full_disk
from tests.sources.cell import ROTATIONS, Cell

DATA = TEST_DATA / "gridengine"
SITE = Site(cluster="fox.test", hostname="master")


def source(tmp_path: Path, **options: object) -> AccountingFile:
    settings: dict[str, object] = {
        "paths": [str(tmp_path / "accounting"), str(tmp_path / "accounting.jsonl")],
        "state_file": str(tmp_path / "checkpoint"),
        "poll_interval": Interval(0.01),
        "rotation_timeout": Duration(0),
        **options,
    }
    return AccountingFile(site=SITE, **settings)  # type: ignore[arg-type]


async def read_once(followed: AccountingFile, *, acknowledge: bool = True) -> list[Accounting]:
    return [record_of(job) for job in await read_all(followed, acknowledge=acknowledge)]


def record_of(job: Job) -> Accounting:
    assert isinstance(job.raw, Accounting)
    return job.raw


async def test_source_follows_both_files_over_restart(tmp_path: Path) -> None:
    """Classic and JSON lines are interleaved; acknowledged ones are not sent again."""
    classic, lines = (DATA / name for name in ("accounting", "derived.jsonl"))
    (tmp_path / "accounting").write_bytes(classic.read_bytes())
    (tmp_path / "accounting.jsonl").write_bytes(lines.read_bytes())
    first = await read_once(source(tmp_path, follow=False), acknowledge=False)
    again = await read_once(source(tmp_path, follow=False))
    assert first == again
    expected = [*read(classic.read_bytes()).records, *read(lines.read_bytes()).records]
    assert [bare(record) for record in first] == [bare(record) for record in expected]
    assert await read_once(source(tmp_path, follow=False)) == []


def bare(record: Accounting) -> Accounting:
    return msgspec.structs.replace(record, submit_cmd_line=None, origin=Origin())


async def test_source_omits_command_line_by_default(tmp_path: Path) -> None:
    """It may contain secrets."""
    (tmp_path / "accounting.jsonl").write_bytes((DATA / "derived.jsonl").read_bytes())
    silent = await read_once(source(tmp_path, follow=False), acknowledge=False)
    reported = await read_once(source(tmp_path, follow=False, command_line=True), acknowledge=False)
    assert {record.submit_cmd_line for record in silent} == {None}
    assert reported[0].submit_cmd_line == "qsub -N normal /home/asmith/burn.sh 3"


async def test_bad_line_is_dead_letter_with_position(tmp_path: Path) -> None:
    """Path, line, offset and reason go with the bytes; the rest is read."""
    payload = (DATA / "derived/derived-malformed.jsonl").read_bytes()
    (tmp_path / "accounting.jsonl").write_bytes(payload)
    async with source(tmp_path, follow=False) as followed:
        (batch,) = [batch async for batch in followed.batches()]
    assert len(batch.records) == 2
    _, second, _ = batch.records.rejected
    assert (second.line, second.offset, second.reason[:8]) == (6, 1139, "not JSON")
    assert (batch.origin, second.original) == (
        f"{tmp_path}/accounting.jsonl",
        payload.split(b"\n")[5],
    )


async def test_source_waits_for_missing_file_and_end_of_line(tmp_path: Path) -> None:
    """A missing file is not an error; an incomplete line is read when it is complete."""
    line = (DATA / "accounting").read_bytes().split(b"\n")[4]
    async with Reader(source(tmp_path)) as reader:
        with (tmp_path / "accounting").open("ab", buffering=0) as file:
            file.write(line + b"\n" + line[:50])
            await eventually(lambda: len(reader.batches) == 1)
            file.write(line[50:] + b"\n")
            await eventually(lambda: len(reader.batches) == 2)
    first, second = map(record_of, reader.records)
    assert bare(first) == bare(second)
    assert second.origin.offset == len(line) + 1  # the same content, and yet another record


async def test_source_continues_if_checkpoint_disk_is_full(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """New lines are still read; the checkpoint is written when there is space again."""
    followed, batches = source(tmp_path), list[Batch[Any]]()

    async def gather() -> None:
        async with followed:
            async for batch in followed.batches():
                batches.append(batch)
                with contextlib.suppress(UnavailableError):  # as the pipe does
                    assert batch.ack
                    await batch.ack()

    task = asyncio.create_task(gather())
    await eventually((tmp_path / "checkpoint").exists)
    before = (tmp_path / "checkpoint").read_bytes()
    (tmp_path / "new").write_bytes((DATA / "accounting").read_bytes().split(b"\n")[4] + b"\n")
    with full_disk(1):
        (tmp_path / "new").rename(tmp_path / "accounting")
        await eventually(lambda: "retrying, and reading on" in caplog.text)
        assert len(batches) == 1
        assert not task.done()
        assert (tmp_path / "checkpoint").read_bytes() == before
    await eventually(lambda: (tmp_path / "checkpoint").read_bytes() != before)
    followed.stop()
    await asyncio.wait_for(task, 60)
    assert caplog.text.count("retrying") == 1


async def test_checkpoint_is_used_by_one_source_only(tmp_path: Path) -> None:
    async with source(tmp_path):
        with pytest.raises(ConfigError, match="is already in use"):
            await source(tmp_path).__aenter__()
    async with source(tmp_path):
        pass


async def test_checkpoint_error_names_file(tmp_path: Path) -> None:
    """Damaged content is an error of configuration; a missing directory is created if it can be."""
    (tmp_path / "checkpoint").write_bytes(b'{"a":')
    with pytest.raises(ConfigError, match=r"state_file: .*/checkpoint: Input data was truncated"):
        await source(tmp_path).__aenter__()
    made = AccountingCheckpoint(tmp_path / "no" / "checkpoint")
    made.open()
    made.close()
    with pytest.raises(
        CreateError, match=r"state_file: .*: no file can be created in .*not a dire"
    ):
        AccountingCheckpoint(tmp_path / "checkpoint" / "checkpoint").open()
    with pytest.raises(ConfigError, match="each only once"):
        source(tmp_path, paths=["a", "a"])
    with pytest.raises(UnavailableError, match="is not an accessible directory"):
        await source(tmp_path, paths=["/no/such/accounting"]).check()


@pytest.mark.parametrize("read_from", ["start", "end", "oldest"])
async def test_source_begins_at_configured_position_without_checkpoint(
    tmp_path: Path, read_from: str
) -> None:
    """At the start of the current file, at its end, or with the oldest rotated one."""
    cell = Cell(tmp_path)
    real = (DATA / "accounting").read_bytes().split(b"\n")
    for count, how in ((2, "gzip"), (3, "rename"), (4, None)):
        with cell.path.open("ab") as file:
            file.write(b"".join(line + b"\n" for line in real[4 * count : 5 * count]))
        if how:
            cell.rotate(how)
    records = await read_once(source(tmp_path, follow=False, read_from=read_from))
    assert len(records) == {"start": 4, "end": 0, "oldest": 9}[read_from]


REPORTING = (DATA / "reporting.head").read_bytes()


async def test_reporting_file_yields_only_starts_and_deletions(tmp_path: Path) -> None:
    """Its records are read if it is also in `paths`, and each line once."""
    (tmp_path / "reporting").write_bytes(REPORTING)
    path, oldest = str(tmp_path / "reporting"), {"read_from": "oldest", "follow": False}
    logs, _ = read_job_log(REPORTING, file="", offset=0, line=1)
    beside = await read_all(source(tmp_path, reporting_file=path, **oldest))
    assert [bare_log(job) for job in beside] == [bare_log(log) for log in logs]
    both = source(
        tmp_path, paths=[path], reporting_file=path, state_file=str(tmp_path / "both"), **oldest
    )
    kinds = Counter(type(job.raw) for job in await read_all(both))
    assert kinds == {JobLog: len(logs), Accounting: len(read(REPORTING).records)}
    assert await read_all(source(tmp_path, reporting_file=path, follow=False)) == []


def bare_log(log: Job | JobLog) -> JobLog:
    line = log.raw if isinstance(log, Job) else log
    assert isinstance(line, JobLog)
    return msgspec.structs.replace(line, origin=Origin())


async def test_source_begins_at_end_of_reporting_file(tmp_path: Path) -> None:
    """Past starts may have no end that is still to be read; new ones are sent."""
    (tmp_path / "reporting").write_bytes(REPORTING)
    path = str(tmp_path / "reporting")
    assert await read_all(source(tmp_path, reporting_file=path, follow=False)) == []
    with (tmp_path / "reporting").open("ab") as file:
        file.write(next(line for line in REPORTING.splitlines(True) if b":sent:" in line))
    assert len(await read_all(source(tmp_path, reporting_file=path, follow=False))) == 1


async def test_source_reads_files_in_order_of_time(tmp_path: Path) -> None:
    """With a large backlog, no file is ahead of another by more than a chunk."""
    begun = next(line for line in REPORTING.split(b"\n") if b":sent:" in line).split(b":")
    ended = read((DATA / "accounting").read_bytes()).records[0]
    with (tmp_path / "reporting").open("wb") as logs, (tmp_path / "accounting").open("wb") as acct:
        for second in range(1_800_000_000, 1_800_012_000):
            begun[2] = b"%d" % second
            logs.write(b":".join(begun) + b"\n")
            acct.write(encode_classic(msgspec.structs.replace(ended, end_time=second * 10**9)))
    path = str(tmp_path / "reporting")
    spans: dict[str, tuple[int, int]] = {}
    async with source(tmp_path, reporting_file=path, read_from="oldest", follow=False) as followed:
        async for batch in followed.batches():
            times = [job.end or job.start for job in batch.records]
            spans[batch.origin] = (times[0], times[-1])
            if len(spans) == 2:
                (begin, end), (other_begin, other_end) = spans.values()
                assert begin <= other_end
                assert other_begin <= end
            assert batch.ack
            await batch.ack()


READER = """
import asyncio, sys
from ccpipe.bus.nats.sink import NatsSink
from ccpipe.config import Bus, Duration, Interval, Site
from ccpipe.pipeline import run
from ccpipe.sources.gridengine.accounting import AccountingFile
from ccpipe.telemetry import Telemetry
from ccpipe.translate.gridengine.translator import AccountingJobs

url, directory, once = sys.argv[1:]
site = Site(cluster="fox.test", hostname="master", bus=Bus(servers=[url]))
source = AccountingFile(
    site=site, paths=[f"{directory}/accounting"],
    state_file=f"{directory}/checkpoint", poll_interval=Interval(0.02),
    rotation_timeout=Duration(0.2), follow=once != "once", read_from="oldest",
)
records = AccountingJobs(site=site, emit=["records"])
sink = NatsSink(site=site, telemetry=Telemetry(), max_lines=1)
asyncio.run(run(source, sink, translators=[records]))
"""
RECORDS = 4000
KILLS = 5


class Writer(threading.Thread):
    """Writes as qmaster does, at full speed, and rotates as cron jobs do."""

    def __init__(self, cell: Cell, seed: int) -> None:
        super().__init__()
        self.cell = cell
        self.random = random.Random(seed)
        self.halt = threading.Event()
        self.pause = 0.0
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            self.write()
        except BaseException as error:
            self.error = error
            raise

    def write(self) -> None:
        record = read((DATA / "accounting").read_bytes()).records[0]
        number = 0
        while number < RECORDS:
            flush = b""
            for _ in range(self.random.randint(1, 40)):
                number += 1
                flush += encode_classic(msgspec.structs.replace(record, job_number=number))
            empty = not self.cell.path.exists() or not self.cell.path.stat().st_size
            cut = self.random.randrange(len(flush))  # a flush is two writes, in mid-line
            with self.cell.path.open("ab", buffering=0) as file:
                file.write(self.cell.header * empty + flush[:cut])
                time.sleep(self.random.random() / 50)
                file.write(flush[cut:])
            if self.random.random() < 0.15:
                self.cell.rotate(self.random.choice(ROTATIONS))
        self.number = number


@pytest.mark.long
async def test_source_loses_and_repeats_nothing_when_killed_during_rotations(
    tmp_path: Path, nats_server: NatsServer, site: Site
) -> None:
    """Rename, gzip, dates and copytruncate at full speed; SIGKILL at random; each record once.

    The consumer is the stream: messages that a killed reader publishes again must be recognised
    by their ids.
    """
    cell = Cell(tmp_path)
    writer = Writer(cell, seed=6)
    writer.start()
    dice = random.Random(7)
    arguments = [sys.executable, "-c", READER, nats_server.url, str(tmp_path)]
    kills = 0
    while writer.is_alive() or kills < KILLS:
        reader = await asyncio.create_subprocess_exec(*arguments, "for ever")
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(reader.wait(), 0.6 + dice.random())
        assert reader.returncode is None, "the reader ended by itself"
        reader.send_signal(signal.SIGKILL)
        await reader.wait()
        kills += 1
    writer.join()
    assert writer.error is None
    last = await asyncio.create_subprocess_exec(*arguments, "once")
    assert await asyncio.wait_for(last.wait(), 300) == 0
    assert await stored(site) == Counter(range(1, writer.number + 1))
    assert cell.rotations > 5


async def stored(site: Site) -> Counter[int]:
    numbers: Counter[int] = Counter()
    bus = Connection(site.bus, name="test", telemetry=Telemetry())
    async with bus:
        total = (await bus.jetstream().stream_info("ccpipe-fox%2Etest")).state.messages
    events = NatsSource(site=site, telemetry=Telemetry(), subjects=["events"], durable="test")
    async with events:
        async for batch in events.batches():
            found = map(from_event, batch.records)
            numbers.update(record.job_number for record in found)
            if numbers.total() >= total:
                break
    return numbers
