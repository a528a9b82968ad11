"""``Hdf5Sink``: samples from the bus become the files that Slurm's plug-in would have written."""

import asyncio
import threading
from pathlib import Path

import pytest

from ccpipe.config import Duration, Interval
from ccpipe.errors import RejectedError
from ccpipe.formats.lineprotocol import to_lines
from ccpipe.formats.slurm_metrics import to_metrics
from ccpipe.formats.slurm_profile.reader import Profile, open_profile
from ccpipe.formats.slurm_profile.writer import keep_aside
from ccpipe.message import Message, event, metric
from ccpipe.sinks.hdf5 import SPOOL, WINDOW, Hdf5Sink, assemble
from tests.conftest import eventually
from tests.e2e.formats.test_sh5util import (
    USER,
    Sh5util,
    sh5util,  # noqa: F401 - a fixture
)
from tests.sinks.conftest import Given, carry

SECOND = 10**9
NOON = 1_740_052_800
TASK = {"CPUTime": 0.5, "CPUUtilization": 50.0, "RSS": 1024, "ReadMB": 0.25, "Pages": 3}


def sample(second: int, series: str = "Tasks", step: str = "0", **values: float) -> list[Message]:
    return list(
        to_metrics(
            series, values or TASK, (NOON + second) * SECOND, cluster="fox", node="n1",
            job="17", step=step, task="0" if series == "Tasks" else None,
        )
    )  # fmt: skip


def end(step: str = "0") -> Message:
    tags = {"cluster": "fox", "hostname": "n1", "jobid": "17", "stepid": step}
    return event("step", "stop_step", "{}", time=NOON * SECOND, tags=tags)


def rows(path: Path) -> dict[str, list[tuple[int, float]]]:
    found = {}
    with open_profile(path) as profile:
        assert isinstance(profile, Profile)
        for table in profile.tables:
            records = table.read()
            name = "RSS" if table.series == "Tasks" else "Power"
            found[table.series] = list(
                zip((records["EpochTime"] - NOON).tolist(), records[name].tolist(), strict=True)
            )
    return found


def sink_in(directory: Path, idle: float = 600) -> Hdf5Sink:
    return Hdf5Sink(
        dir=str(directory), idle_timeout=Interval(idle), last_sample_timeout=Duration(0)
    )


async def test_ended_step_becomes_file(tmp_path: Path) -> None:
    """Samples whose fields arrived in several messages are rows; sh5util reads the parts."""
    first, second = sample(0), sample(10, RSS=2048, CPUTime=1.5)
    final = tmp_path / "17_0_n1.h5"
    async with sink_in(tmp_path) as sink:
        await sink.write(to_lines([*first[:2], *sample(0, "Energy", Power=200)]))
        await sink.write(to_lines([*first[2:], *second]))
        assert not final.exists()
        await sink.write(to_lines([end()]))
        await eventually(lambda: final.exists() and not [*(tmp_path / SPOOL).iterdir()], 60)
    assert rows(final) == {"Tasks": [(0, 1024), (10, 2048)], "Energy": [(0, 200)]}
    with open_profile(final) as profile:
        [tasks] = [table for table in profile.tables if table.series == "Tasks"]
        record = tasks.read()[0]
        assert {name: record[name] for name in TASK} == TASK
        assert (tasks.node_step.job, tasks.node_step.step, tasks.node_step.node) == (17, "0", "n1")


async def test_sh5util_merges_file(
    sh5util: Sh5util,  # noqa: F811
    tmp_path: Path,
) -> None:
    """Slurm's own program finds every row that was published."""
    async with sink_in(tmp_path / USER) as sink:
        await sink.write(to_lines([*sample(0), *sample(5, "Energy", Power=210), end()]))
        await eventually((tmp_path / USER / "17_0_n1.h5").exists, 60)
    done = await asyncio.to_thread(sh5util, "-j", 17, "-S", "-o", tmp_path / "job_17.h5")
    assert done.returncode == 0, done.stderr
    assert rows(tmp_path / "job_17.h5") == {"Tasks": [(0, 1024)], "Energy": [(5, 210)]}


async def test_killed_bridge_loses_nothing(tmp_path: Path) -> None:
    """The next one continues its files; redelivered samples are stored once."""
    async with sink_in(tmp_path) as first:
        await first.write(to_lines(sample(0) + sample(10)))
    spool = tmp_path / SPOOL / "17_0_n1.lp"
    with spool.open("ab") as file:
        file.write(b"task_mem_rss,cluster=fox,hostname=n1,jobid=17,stepid=0 value=1")  # cut off
    async with sink_in(tmp_path) as sink:
        await sink.write(to_lines([*sample(10), *sample(20, RSS=7), end()]))
        await eventually(lambda: not spool.exists(), 60)
    assert rows(tmp_path / "17_0_n1.h5") == {"Tasks": [(0, 1024), (10, 1024), (20, 7)]}


async def test_process_killed_before_cleaning_up_creates_no_second_run(
    tmp_path: Path,
) -> None:
    """The file is newer than its parts: the next process only cleans up."""
    async with sink_in(tmp_path) as sink:
        await sink.write(to_lines(sample(0)))
    spool, final = tmp_path / SPOOL / "17_0_n1.lp", tmp_path / "17_0_n1.h5"
    from ccpipe.formats.slurm_profile.names import NodeStepName

    assemble(spool, final, NodeStepName(17, "0", "n1"))
    async with sink_in(tmp_path, idle=0.01):
        await eventually(lambda: not spool.exists(), 60)
    assert [path.name for path in tmp_path.iterdir() if path.suffix == ".h5"] == ["17_0_n1.h5"]


async def test_idle_step_ends_and_requeued_one_is_another_run(tmp_path: Path) -> None:
    """Without an event; the file of the earlier run is renamed."""
    final = tmp_path / "17_0_n1.h5"
    for second in (0, 100):
        async with sink_in(tmp_path, idle=0.05) as sink:
            await sink.write(to_lines(sample(second)))
            await eventually(lambda: not [*(tmp_path / SPOOL).glob("*.lp")], 60)
    assert rows(final) == {"Tasks": [(100, 1024)]}
    assert rows(tmp_path / ".17_0_n1.0.h5") == {"Tasks": [(0, 1024)]}


async def test_late_samples_are_sorted_in(tmp_path: Path) -> None:
    """Within a window of rows; memory does not grow with the step."""
    seconds = [*range(0, 300, 2), *range(299 - WINDOW // 2, 300, 2)]
    async with sink_in(tmp_path) as sink:
        await sink.write(
            to_lines([m for s in seconds for m in sample(s, "Energy", Power=s)] + [end()])
        )
        await eventually((tmp_path / "17_0_n1.h5").exists, 60)
    found = rows(tmp_path / "17_0_n1.h5")["Energy"]
    assert found == [(s, s) for s in sorted(seconds)]


async def test_redelivered_samples_replace_no_file(tmp_path: Path) -> None:
    """If the step already has its file, they are kept next to it and logged."""
    final, late = tmp_path / "17_0_n1.h5", tmp_path / SPOOL / "17_0_n1.late"
    async with sink_in(tmp_path, idle=0.05) as sink:
        await sink.write(to_lines([*sample(0), *sample(10), end()]))
        await eventually(lambda: final.exists() and not [*(tmp_path / SPOOL).iterdir()], 60)
        await sink.write(to_lines(sample(0)))
        await eventually(late.exists, 60)
        await sink.write(to_lines(sample(10)))
        await eventually(lambda: late.read_bytes().count(b"\n") == 2 * len(TASK), 60)
    assert rows(final) == {"Tasks": [(0, 1024), (10, 1024)]}
    assert [*tmp_path.glob(".*.h5")] == []


async def test_sample_arriving_while_file_is_written_is_not_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was acknowledged, so it is gathered for the next file."""
    final, later = tmp_path / "17_0_n1.h5", sample(50)
    writing: list[asyncio.Task[None]] = []
    async with sink_in(tmp_path) as sink:
        loop = asyncio.get_running_loop()

        def write_meanwhile(path: Path) -> Path | None:
            if not writing:
                started = threading.Event()

                def start() -> None:
                    writing.append(loop.create_task(sink.write(to_lines(later))))
                    loop.call_later(0.2, started.set)  # so long it may try

                loop.call_soon_threadsafe(start)
                assert started.wait(60)
            return keep_aside(path)

        monkeypatch.setattr("ccpipe.sinks.hdf5.keep_aside", write_meanwhile)
        await sink.write(to_lines([*sample(0), end()]))
        await eventually(lambda: final.exists() and bool(writing), 60)
        await writing[0]
        gathered = (tmp_path / SPOOL / "17_0_n1.lp").read_bytes()
    assert gathered.count(b"\n") == len(later)


async def test_removed_directory_is_created_again(tmp_path: Path) -> None:
    async with sink_in(tmp_path) as sink:
        (tmp_path / SPOOL).rmdir()
        await sink.write(to_lines([*sample(0), end()]))
        await eventually((tmp_path / "17_0_n1.h5").exists, 60)


async def test_record_that_is_not_sample_is_dead_letter(tmp_path: Path) -> None:
    """Each is named; the samples between them are gathered."""
    tags = {"hostname": "n1", "jobid": "17", "stepid": "0"}
    bad = [
        metric("cpu_load", 1.0, time=NOON * SECOND, tags=tags),
        metric("node_power", 1.0, time=NOON * SECOND, tags={"hostname": "n1"}),
        metric("node_power", -1.0, time=NOON * SECOND, tags=tags),
        metric("task_mem_rss", 1.0, time=NOON * SECOND, tags=tags),
        metric("node_power", 1.0, time=NOON * SECOND, tags=tags | {"hostname": "../x"}),
        metric("node_power", 1.0, time=NOON * SECOND, tags=tags | {"jobid": "x"}),
    ]
    async with sink_in(tmp_path) as sink:
        with pytest.raises(RejectedError, match="cpu_load: not a metric of a profile") as caught:
            await sink.write(to_lines([*bad, *sample(0)]))
    assert caught.value.indices == [0, 1, 2, 3, 4, 5]
    letters = await carry(Given([*bad, *sample(0)]), sink_in(tmp_path))
    assert len(letters) == 6
    assert (tmp_path / SPOOL / "17_0_n1.lp").read_bytes().count(b"\n") == len(TASK)
