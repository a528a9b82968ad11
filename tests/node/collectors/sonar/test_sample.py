"""Sonar's sample of a node: jobs, processes, filters, roll-up, errors."""

import getpass
import itertools
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import nats
import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from ccpipe.bus.codecs.sonar import SonarCodec
from ccpipe.bus.nats.sink import NatsSink
from ccpipe.config import Site
from ccpipe.formats.sonar import (
    Envelope,
    SampleAttributes,
    SampleJob,
    SampleProcess,
    SampleProcessGpu,
    decode,
)
from ccpipe.formats.sonar.envelopes import Envelopes
from ccpipe.formats.sonar.sums import synthetic_pid
from ccpipe.node.collectors.processes import Processes
from ccpipe.node.collectors.sonar.process import Users
from ccpipe.node.collectors.sonar.sample import SonarSample
from ccpipe.node.collectors.sonar.sysinfo import SonarSysinfo
from ccpipe.node.linux.process_table import ProcessTable
from ccpipe.telemetry import Telemetry
from ccpipe.translate.sonar.sonar_to_cc import SonarToCc
from tests.conftest import eventually
from tests.node.collectors.sonar.test_sysinfo import strict
from tests.node.conftest import Root
from tests.node.fake_nvml import FakeGpu, install

SLOT = 1_740_027_950 * 10**9
EPOCH = 1_740_000_000 - 1_577_836_800
ANN, BOB = "_user_61001", "_user_61002"
ROOT, NGINX = Users().name(0), Users().name(101)
"""Whoever they are on this machine."""


def made(root: object = "/", **options: Any) -> SonarSample:
    return SonarSample(cluster="fox.test", node="n1", root=str(root), **options)


def sampled(collector: SonarSample, slot: int = SLOT) -> SampleAttributes:
    [envelope] = collector.collect(slot)
    data = strict(envelope).data
    assert data is not None
    assert isinstance(data.attributes, SampleAttributes)
    return data.attributes


def clean(collector: SonarSample, slot: int = SLOT) -> SampleAttributes:
    reported = sampled(collector, slot)
    assert reported.errors == ()
    return reported


def processes(reported: SampleAttributes) -> dict[int, SampleProcess]:
    return {process.pid: process for job in reported.jobs for process in job.processes}


def jobs(reported: SampleAttributes) -> dict[tuple[int, int, str], list[int]]:
    return {
        (job.job, job.epoch, job.user): [process.pid for process in job.processes]
        for job in reported.jobs
    }


@pytest.fixture
def first(root: Root) -> Root:
    """Return the root with the tree of the first sample."""
    root.show("sonar/first")
    return root


@pytest.fixture
def apart(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Return a function that sets the seconds between two walks, which trees do not hold."""

    def between(seconds: float) -> None:
        times = itertools.count(1000.0, seconds)
        monkeypatch.setattr("ccpipe.node.linux.process_table.monotonic", times.__next__)

    return between


def test_sample_groups_processes_by_job(first: Root) -> None:
    """Slurm's have epoch 0, whichever version of cgroups; the others are process groups."""
    assert jobs(clean(made(first))) == {
        (123, 0, ANN): [1000, 1001, 1002, 1003],
        (456, 0, BOB): [1500],
        (2000, EPOCH, BOB): [2000],
        (2001, EPOCH, BOB): [2001, 2002],
        (2003, EPOCH, BOB): [2003],
        (2005, EPOCH, BOB): [2005],
        (3001, EPOCH, NGINX): [3001, 3002],
    }


def test_sample_reports_measures_of_process(first: Root) -> None:
    """Each in its unit; the first sample's use is the mean of the process' life."""
    reported = processes(clean(made(first)))
    assert reported[1001] == SampleProcess(
        resident_memory=500_000,
        virtual_memory=600_132,
        cmd="rank (a) b",
        pid=1001,
        ppid=1000,
        num_threads=3,
        cpu_avg=43.8,
        cpu_util=43.8,
        cpu_time=350,
        data_read=9766,
        data_written=1954,
        data_cancelled=3,
    )
    assert reported[2001].cpu_time == 3  # with children that ended
    assert reported[2001].cpu_avg == 1.0  # without them
    assert reported[2003].cmd == "gone <defunct>"
    assert reported[2005].cpu_avg == 0  # a tick old
    assert reported[1003].num_threads == 0


def test_sample_reports_use_since_last_sample(root: Root, apart: Callable[[float], None]) -> None:
    """A reused number starts over; a child's end is not a burst; nothing is negative."""
    apart(100)
    root.show("sonar/first")
    collector = made(root)
    clean(collector, 1)
    root.show("sonar/second")
    reported = processes(clean(collector, 2))
    assert reported[1001].cpu_util == 100.0
    assert (reported[1002].cpu_util, reported[1002].cpu_avg) == (5.0, 10.0)
    assert reported[2001].cpu_util == 50.0
    assert reported[1500].cpu_util == 0.0
    assert reported[1000].cpu_util == 0.0
    assert 2002 not in reported


def test_sample_reports_all_processes_with_option(first: Root) -> None:
    """Kernel threads are process group 0; a process being removed is never reported."""
    reported = jobs(clean(made(first, exclude_system_jobs=False)))
    assert reported[0, EPOCH, ROOT] == [2, 20]
    assert reported[1, EPOCH, ROOT] == [1]
    assert reported[123, 0, ROOT] == [900, 1004]
    assert 2004 not in itertools.chain.from_iterable(reported.values())


def test_sample_reports_containers_of_system_users(first: Root) -> None:
    reported = processes(clean(made(first)))
    inside = {pid for pid, process in reported.items() if process.in_container}
    assert inside == {3001, 3002}
    assert 3000 not in reported


def test_sample_excludes_users_and_command_prefixes(first: Root) -> None:
    assert set(processes(clean(made(first, exclude_users=[BOB, "_user_10"])))) == {
        1000, 1001, 1002, 1003, 3001, 3002,
    }  # fmt: skip
    commands = ["rank", "bas", "ginx"]
    reported = clean(made(first, exclude_commands=commands))
    assert set(processes(reported)) == {1500, 2001, 2002, 2003, 2005, 3001, 3002}
    assert all(job.processes for job in reported.jobs)


def test_sample_excludes_processes_below_min_cpu_time(first: Root) -> None:
    reported = clean(made(first, min_cpu_time=4.0))
    assert set(processes(reported)) == {1001, 1002, 1500, 2002, 3001}
    assert all(job.processes for job in reported.jobs)


def test_sample_rolls_up_similar_processes(first: Root) -> None:
    """Only leaves of batch jobs: an excluded child still makes its parent an inner node."""
    [job] = [job for job in clean(made(first, rollup=True)).jobs if job.job == 123]
    *alone, rolled = sorted(job.processes, key=lambda process: process.pid)
    assert [process.pid for process in alone] == [1000, 1003]
    assert rolled.pid == synthetic_pid(job, rolled.ppid, rolled.cmd) > 2**22
    assert (rolled.rolledup, rolled.cpu_time) == (1, 560)
    assert rolled.resident_memory == 1_000_000


def test_sample_applies_min_cpu_time_after_roll_up(first: Root) -> None:
    """350 s and 210 s are 560 s together."""
    reported = clean(made(first, rollup=True, min_cpu_time=400.0))
    assert [(job.job, len(job.processes)) for job in reported.jobs] == [(123, 1), (456, 1)]


def test_sample_shares_walk_with_collector_processes(first: Root) -> None:
    states = Processes(root=str(first))
    collector = made(first, table=states.table)
    list(states.collect(1))
    walk = states.table.at(1)
    assert len(processes(clean(collector, 1))) == 12
    assert collector.table.at(1) is walk
    clean(collector, 2)
    walk = states.table.at(2)
    list(states.collect(2))
    assert states.table.at(2) is walk


def test_sample_accepts_new_table_between_samples(first: Root) -> None:
    collector = made(first)
    before = processes(clean(collector, 1))
    collector.table = ProcessTable(root=str(first))
    assert set(processes(clean(collector, 2))) == set(before)


def copied(root: Root, directory: Path) -> Path:
    root.show("sonar/first")
    return Path(shutil.copytree(root.path / "proc", directory / "proc"))


def test_sample_reports_bad_files_as_errors(root: Root, tmp_path: Path) -> None:
    """A process without a file of its memory has ended; an invalid file is an error."""
    proc = copied(root, tmp_path)
    (proc / "1001/stat").write_text("1001 rank\n")
    (proc / "1002/statm").write_text("rank\n")
    (proc / "1003/statm").unlink()
    (proc / "1500/io").write_text("secret\n")
    (proc / "uptime").unlink()
    (proc / "loadavg").write_text("")
    reported = sampled(made(tmp_path))
    assert set(processes(reported)) == {1000, 2000, 2001, 2002, 2003, 2005, 3001, 3002}
    details = " | ".join(error.detail for error in reported.errors)
    for name in ("1001/stat", "1002/statm", "1500/io", "uptime", "loadavg"):
        assert f"proc/{name}" in details
    assert len(reported.errors) == 5
    assert processes(reported)[2002].cpu_avg == 0
    assert reported.errors[0].time == reported.time


@pytest.mark.parametrize("missing", ["stat", "."])
def test_sample_is_envelope_of_errors_without_process_table(
    root: Root, tmp_path: Path, missing: str
) -> None:
    proc = copied(root, tmp_path)
    (proc / "stat").unlink() if missing == "stat" else proc.rename(tmp_path / "away")
    [envelope] = made(tmp_path).collect(SLOT)
    strict(envelope)
    assert envelope.data is None
    assert "No such file or directory" in envelope.errors[-1].detail
    assert (envelope.errors[-1].cluster, envelope.errors[-1].node) == ("fox.test", "n1")


def test_sample_reports_gpus_of_processes(
    root: Root, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One unknown to this node gets placeholder names; an excluded one stays excluded."""
    copied(root, tmp_path)
    answers = {
        "GetMemoryInfo_v2": {"total": 2**30, "used": 2**29},
        "GetComputeRunningProcesses_v3": [(1001, 2**28), (77, 2**20), (1, 0)],
    }
    install(monkeypatch, tmp_path, FakeGpu("00000000:01:00.0", "GPU-a", answers))
    reported = clean(made(tmp_path))
    assert reported.system is not None
    assert [(gpu.uuid, gpu.memory) for gpu in reported.system.gpus] == [("GPU-a", 2**19)]
    use = SampleProcessGpu(uuid="GPU-a", gpu_memory=2**18, gpu_memory_util=25.0)
    assert processes(reported)[1001].gpus == (use,)
    small = SampleProcessGpu(uuid="GPU-a", gpu_memory=1024, gpu_memory_util=0.1)
    [unknown] = [job for job in reported.jobs if job.user == "_user_unknown"]
    assert unknown == SampleJob(
        77, "_user_unknown", EPOCH, (SampleProcess(cmd="_unknown_", pid=77, gpus=(small,)),)
    )
    assert 1 not in processes(reported)


def test_sample_encodes_names_of_invalid_utf_8(root: Root, tmp_path: Path) -> None:
    """Each invalid byte becomes a replacement character; users choose the names of processes."""
    proc = copied(root, tmp_path)
    text = (proc / "2000/stat").read_bytes()
    (proc / "2000/stat").write_bytes(text.replace(b"bash", b"b\xff\x01\n)a"))
    assert processes(clean(made(tmp_path)))[2000].cmd == "b\ufffd\x01\n)a"


def test_sample_without_jobs_is_heartbeat() -> None:
    reported = clean(made(exclude_users=[getpass.getuser()], exclude_commands=[""]))
    assert (reported.jobs, reported.system is None) == ((), False)
    assert (reported.cluster, reported.node) == ("fox.test", "n1")


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    child = subprocess.Popen(["sleep", "60"])
    try:
        yield child
    finally:
        child.kill()
        child.wait()


def test_sample_agrees_with_psutil(sleeper: subprocess.Popen[bytes]) -> None:
    """Of this process and a child: user, parent, threads, time and memory."""
    collector = made(exclude_system_jobs=False)
    clean(collector, 1)
    before = psutil.Process().cpu_times()
    reported = clean(collector, 2)
    mine, child = psutil.Process(), processes(reported)[sleeper.pid]
    [job] = [job for job in reported.jobs if sleeper.pid in {p.pid for p in job.processes}]
    assert job.user == mine.username()
    assert (job.job, job.epoch > 0) == (os.getpgid(sleeper.pid), True)
    assert (child.cmd, child.ppid, child.cpu_time) == ("sleep", os.getpid(), 0)
    me, after = processes(reported)[os.getpid()], mine.cpu_times()
    assert me.num_threads == mine.num_threads() - 1
    assert sum(before[:4]) - 1 <= me.cpu_time <= sum(after[:4]) + 1
    assert me.cpu_util >= 0
    assert len(processes(reported)) == pytest.approx(len(psutil.pids()), abs=20)


async def test_sample_reports_ended_child_as_zombie_until_reaped() -> None:
    child = subprocess.Popen(["true"])
    collector, slots = made(exclude_system_jobs=False), itertools.count(1)

    def reported() -> str | None:
        found = processes(clean(collector, next(slots))).get(child.pid)
        return found.cmd if found else None

    try:
        await eventually(lambda: reported() == "true <defunct>")
    finally:
        child.wait()
    assert reported() is None


FILES = [
    "stat", "uptime", "loadavg", "meminfo", "diskstats",
    "7/stat", "7/status", "7/statm", "7/io", "7/cgroup",
]  # fmt: skip


@given(st.dictionaries(st.sampled_from(FILES), st.binary(max_size=200)))
def test_sample_is_valid_for_any_files(
    tmp_path_factory: pytest.TempPathFactory, contents: dict[str, bytes]
) -> None:
    """Data or errors, by the specification's rules, and never an exception."""
    directory = tmp_path_factory.mktemp("any")
    (directory / "proc/7").mkdir(parents=True)
    good = {
        "stat": b"cpu 1 2 3 4\ncpu0 1 2 3 4\nbtime 1740000000\n",
        "7/stat": b"7 (b) S 1 8 8 0 -1 4194560 8548 0 0 0 55 6 0 0 20 0 1 0 14 30408704 6308 1\n",
        "7/status": b"Name:\tb\nUid:\t5000\t5000\t5000\t5000\n",
        "7/statm": b"500 90 40 1 0 100 0\n",
    }
    for name, content in {**good, **contents}.items():
        (directory / "proc" / name).write_bytes(content)
    [envelope] = made(directory).collect(SLOT)
    strict(envelope)


def test_sample_is_translated_to_metrics(root: Root, apart: Callable[[float], None]) -> None:
    """By the bridge to ClusterCockpit: gauges at once, rates from the second sample on."""
    apart(100)
    translator, collector = SonarToCc(), made(root)
    reported: list[dict[str, Any]] = []
    for number, reading in enumerate(("first", "second")):
        root.show(f"sonar/{reading}")
        envelopes = list(collector.collect(SLOT + number * 100 * 10**9))
        reported.append({
            message.name: message.value
            for message in translator.feed(Envelopes(envelopes))
            if message.tags["type"] == "node" and message.tags.get("stype-id", "123") == "123"
        })  # fmt: skip
    first, second = reported
    assert (first["cpu_load"], second["cpu_load"]) == (1.5, 2.5)
    assert "cpu_used" not in first
    assert second["cpu_used"] == 100  # one hardware thread was busy all the time


async def test_envelopes_are_published_to_real_broker(root: Root, site: Site) -> None:
    """Unchanged, on the subjects of their types; errors on the subject of errors."""
    root.show("sonar/first")
    [sample] = made(root).collect(SLOT)
    root.show("topology/first")
    [sysinfo] = SonarSysinfo(cluster="fox.test", node="n1", root=str(root)).collect(SLOT)
    [errors] = made(root).collect(SLOT)
    core = replace(site, bus=replace(site.bus, jetstream=False))
    arrived: dict[str, Envelope] = {}
    client = await nats.connect(site.bus.servers[0])
    subscription = await client.subscribe("*.sonar.*")
    await client.flush()
    async with NatsSink(site=core, telemetry=Telemetry(), codec=SonarCodec()) as sink:
        await sink.write(Envelopes([sample, sysinfo, errors]))
    for _ in range(3):
        message = await subscription.next_msg(20)
        [arrived[message.subject.rpartition(".")[2]]] = decode(message.data, strict=True)
    await client.close()
    assert arrived == {"sample": sample, "sysinfo": sysinfo, "error": errors}
