"""A directory of profile files, followed: each sample once, despite restarts and damage."""

import asyncio
import contextlib
import shutil
from collections import Counter
from pathlib import Path

import pytest

from ccpipe.config import Interval, Site
from ccpipe.errors import ConfigError
from ccpipe.formats.lineprotocol import encode
from ccpipe.formats.slurm_metrics import Value, from_metric
from ccpipe.formats.slurm_profile.extract import samples
from ccpipe.formats.slurm_profile.reader import open_profile
from ccpipe.formats.slurm_profile.table import NodeStep
from ccpipe.formats.slurm_profile.writer import NodeStepWriter
from ccpipe.message import Message
from ccpipe.sources.hdf5_dir import Hdf5Dir
from tests.paths import TEST_DATA

FILES = sorted((TEST_DATA / "slurm_profile").glob("node-step/**/[0-9]*_c1.h5"))
SITE = Site(cluster="fox", hostname="bridge")


def source(directory: Path, state: str = "", *, follow: bool = False, batch: int = 7) -> Hdf5Dir:
    return Hdf5Dir(
        site=SITE, dir=str(directory), state_file=state, follow=follow,
        poll_interval=Interval(0.05), batch_size=batch,
    )  # fmt: skip


async def read(made: Hdf5Dir, *, batches: int = 10**6, ack: bool = True) -> list[Message]:
    found: list[Message] = []
    async with made, contextlib.aclosing(made.batches()) as iterator:  # type: ignore[type-var]
        async for batch in iterator:
            found += batch.records
            if ack:
                assert batch.ack
                await batch.ack()
            batches -= 1
            if not batches:
                break
    return found


def line(message: Message) -> bytes:
    return encode([message], precision="ns")


def messages_of(path: Path) -> list[Message]:
    with open_profile(path) as profile:
        return [one for sample in samples(profile.tables, "fox") for one in sample]


async def test_source_sends_each_sample_of_slurm_files_once(tmp_path: Path) -> None:
    assert len(FILES) > 1
    wanted: list[Message] = []
    for number, path in enumerate(FILES):
        user = tmp_path / f"user{number}"
        user.mkdir()
        shutil.copy(path, user)
        wanted += messages_of(path)
    shutil.copy(TEST_DATA / "slurm_profile" / "merged" / "job_17.h5", tmp_path)
    found = await read(source(tmp_path))
    assert Counter(map(line, found)) == Counter(map(line, wanted))
    assert {message.tags["cluster"] for message in found} == {"fox"}


@pytest.mark.parametrize("taken", [1, 2, 5])
async def test_source_skips_acknowledged_samples_after_restart(tmp_path: Path, taken: int) -> None:
    """Unacknowledged samples are sent again: nothing is lost."""
    directory, state = tmp_path / "profiles", str(tmp_path / "state")
    directory.mkdir()
    shutil.copy(FILES[0], directory)
    first = await read(source(directory, state), batches=taken)
    await read(source(directory, state), batches=1, ack=False)
    rest = await read(source(directory, state))
    assert first
    assert Counter(map(line, first + rest)) == Counter(map(line, messages_of(FILES[0])))
    assert not await read(source(directory, state))


async def test_source_sends_samples_of_running_step_as_written(tmp_path: Path) -> None:
    found: list[Value] = []
    made = source(tmp_path, follow=True)

    async def follow() -> None:
        async for batch in made.batches():
            found.extend(map(from_metric, batch.records))
            assert batch.ack
            await batch.ack()

    task = asyncio.create_task(follow())
    path = tmp_path / "17_0_c1.h5"
    with NodeStepWriter(path, NodeStep(step="0", node="c1", job=17, tasks=1)) as writer:
        for second in range(3):
            writer.append("Energy", {"Power": 100 + second}, 1000 + second)
            writer.flush()
            async with asyncio.timeout(60):
                while len(found) <= second:
                    await asyncio.sleep(0.02)
    made.stop()
    await task
    assert [(one.job, one.value, one.time) for one in found] == [
        ("17", 100 + second, (1000 + second) * 10**9) for second in range(3)
    ]


async def test_source_skips_damaged_file(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "1_0_c1.h5").write_bytes(b"no HDF5 at all" * 100)
    shutil.copy(FILES[0], tmp_path)
    found = await read(source(tmp_path))
    assert len(found) == len(messages_of(FILES[0]))
    assert [one.message.count("1_0_c1.h5") > 0 for one in caplog.records] == [True]


async def test_source_rejects_missing_directory_and_invalid_size(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="dir: "):
        await read(source(tmp_path / "none"))
    with pytest.raises(ConfigError, match="batch_size"):
        source(tmp_path, batch=0)


async def test_source_waits_for_incomplete_file(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    shutil.copy(TEST_DATA / "slurm_profile" / "live" / "35_0_c1.h5", tmp_path)
    assert not await read(source(tmp_path))
    assert not caplog.records
