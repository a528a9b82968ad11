"""Every collector, with each of its files missing, spoilt in turn, or of any text."""

import logging
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ccpipe.errors import DataError
from ccpipe.message import Message
from ccpipe.node.collectors.clock import Clock
from ccpipe.node.collectors.cpu import Cpu
from ccpipe.node.collectors.cpu_limits import CpuLimits
from ccpipe.node.collectors.gpu.amd_gpu import AmdGpu
from ccpipe.node.collectors.infiniband import InfiniBand
from ccpipe.node.collectors.ipmi import Ipmi
from ccpipe.node.collectors.load import Load
from ccpipe.node.collectors.memory import Memory
from ccpipe.node.collectors.network import Network
from ccpipe.node.collectors.numa import Numa
from ccpipe.node.collectors.pressure import Pressure
from ccpipe.node.collectors.processes import Processes
from ccpipe.node.collectors.rapl import Rapl
from ccpipe.node.collectors.schedstat import Schedstat
from ccpipe.node.collectors.self import SelfUsage
from ccpipe.node.collectors.slurm_cgroup import SlurmCgroup
from ccpipe.node.collectors.storage.disk import Disk
from ccpipe.node.collectors.storage.lustre import Lustre
from ccpipe.node.collectors.storage.lustre_jobstats import LustreJobstats
from ccpipe.node.collectors.storage.nfs import Nfs
from ccpipe.node.collectors.storage.smartmon import Smartmon
from ccpipe.node.collectors.temperature import Temperature
from ccpipe.node.collectors.topprocs import TopProcesses
from tests.node.conftest import PACKED, TREES, Root, reported, unpack

OTHERWISE = {
    "beegfs_meta": "runs a program: test_beegfs.py",
    "beegfs_storage": "runs a program: test_beegfs.py",
    "command": "runs programs: test_command.py",
    "gpfs": "runs a program: test_gpfs.py",
    "ipmi": "runs a program: test_ipmi.py",
    "likwid": "asks a library: test_likwid.py",
    "load": "one file of one line",
    "nvidia": "asks a library: test_nvidia.py",
    "perf": "asks the kernel: test_perf.py",
    "portable": "asks a library: test_portable.py",
    "smartmon": "runs a program: test_smartmon.py",
}
"""Collectors that read no files, or only one, and where their bad readings are tested."""

UNLIKE = {"processes", "self", "topprocs"}
"""Collectors that count or rank what they read, or read this very process."""

AGGREGATES = {(name, "node", "", "", "") for name in ("clock", "min_cpu_freq", "max_cpu_freq")}
"""Metrics that are the mean of what could be read."""

OF_THIS_MACHINE = {"disk_free", "part_max_used"}
"""Metrics of its file systems, which other tests fill meanwhile."""

GARBAGE = "N/A (no PMA)\n"
NAMES = re.compile(r"/(name|vendor|\w+_label) garbage|/mountstats:|/mounts garbage")
"""Files with names, any of which may be right."""
Key = tuple[str, ...]


OST = "proc/fs/lustre/obdfilter/scratch-OST0000"


class Case(NamedTuple):
    """A collector, and a tree that it reads."""

    make: Callable[..., Any]
    tree: str
    by_lines: tuple[str, ...] = ()
    """Files without which nothing is known, of which lines are spoilt."""


CASES = {
    "infiniband": Case(InfiniBand, "infiniband"),
    "lustre": Case(Lustre, "lustre"),
    "lustre_jobstats": Case(LustreJobstats, "lustre-jobstats", (f"{OST}/job_stats",)),
    "temperature": Case(partial(Temperature, limits=True), "hwmon"),
    "rapl": Case(Rapl, "rapl"),
    "clock": Case(Clock, "clock"),
    "cpu_limits": Case(CpuLimits, "cpu-limits"),
    "numa": Case(Numa, "captured-sys"),
    "pressure": Case(Pressure, "pressure"),
    "amd_gpu": Case(AmdGpu, "amd"),
    "slurm_cgroup": Case(SlurmCgroup, "cgroup-v2"),
    "slurm_cgroup-v1": Case(SlurmCgroup, "cgroup-v1"),
    "nfs": Case(Nfs, "nfs", ("proc/net/rpc/nfs", "proc/self/mountstats")),
    "network": Case(Network, "captured", ("proc/net/dev",)),
    "cpu": Case(Cpu, "captured", ("proc/stat",)),
    "memory": Case(Memory, "captured", ("proc/meminfo",)),
    "disk": Case(Disk, "captured", ("proc/diskstats",)),
    "schedstat": Case(Schedstat, "schedstat", ("proc/schedstat",)),
    "processes": Case(Processes, "processes", ("proc/stat",)),
    "self": Case(SelfUsage, "self", ("proc/self/status",)),
    "topprocs": Case(partial(TopProcesses, num_procs=20), "topprocs"),
}


PACKED_READERS: dict[str, Callable[..., Any]] = {
    case.tree: case.make for case in CASES.values() if not (TREES / case.tree).is_dir()
} | {
    "captured-sys": partial(Memory, domains=True),
    "hwmon": partial(Temperature, exclude=[], limits=True),
}
"""By the tree that they read."""

READERS: dict[str, Callable[..., Any]] = {
    "stat": partial(Cpu, hwthreads=["*"]),
    "diskstats": partial(Disk, exclude=[]),
    "self/mounts": partial(Disk, exclude=[]),
    "loadavg": Load,
    "meminfo": Memory,
    "net/dev": partial(Network, exclude=[]),
}
"""By their file in ``/proc``."""


def test_every_collector_is_tested_with_bad_files() -> None:
    names = {each.name for each in entry_points(group="ccpipe.collectors")}
    assert {name.partition("-")[0] for name in CASES} | OTHERWISE.keys() == {
        name for name in names if name.isidentifier()
    }


def put(tree: str, reading: str, directory: Path) -> None:
    shutil.rmtree(directory, ignore_errors=True)
    if (TREES / tree).is_dir():
        shutil.copytree(TREES / tree / reading, directory)
        return
    unpack((PACKED / f"{tree}.txt").read_text(), directory, reading)


def taken(case: Case, directory: Path, spoil: Callable[[], object]) -> tuple[dict[Key, Any], Any]:
    put(case.tree, "first", directory)
    collector = case.make(root=str(directory))
    list(collector.collect(1))
    put(case.tree, "second", directory)
    spoil()
    try:
        messages: list[Message] = list(collector.collect(2))
    except (OSError, DataError):
        messages = []
    return {
        (each.name, *(each.tags.get(key, "") for key in ("type", "type-id", "stype", "stype-id"))):
        each.value
        for each in messages
    }, collector  # fmt: skip


def spoilers(case: Case, directory: Path) -> Iterator[tuple[str, Callable[[], object]]]:
    put(case.tree, "second", directory)
    files = sorted(
        path for path in directory.rglob("*") if path.is_file() and not path.is_symlink()
    )
    for path in files:
        name = str(path.relative_to(directory))
        if name in case.by_lines:
            lines = path.read_text().splitlines()
            for number, line in enumerate(lines):
                first = line[: len(line) - len(line.lstrip())] + (line.split() or [""])[0]
                bad = "\n".join([*lines[:number], f"{first} x y z", *lines[number + 1 :]]) + "\n"
                yield (f"{name}:{number + 1} garbage", partial(path.write_text, bad))
        else:
            yield f"{name} garbage", partial(path.write_text, GARBAGE)
            yield f"{name} empty", partial(path.write_text, "")
            yield f"{name} missing", path.unlink
            yield (f"{name} EIO", partial(fail, path))


def fail(path: Path) -> None:
    path.unlink()
    path.symlink_to("/proc/self/mem")


def like(value: Any) -> Any:
    return value if isinstance(value, str) else pytest.approx(value, rel=1e-3)


def device(key: Key) -> Key:
    return (*key[1:3], "", "") if key[1] == "accelerator" else key[1:]


@pytest.mark.parametrize("name", CASES)
def test_collectors_omit_only_values_of_bad_file(
    name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, seconds: Any
) -> None:
    """At most one device loses metrics, other values are unaffected, and garbage is logged."""
    case, directory = CASES[name], tmp_path / "root"
    seconds(10)
    whole, _ = taken(case, directory, lambda: None)
    devices = {device(key) for key in whole}
    assert whole
    for what, spoil in spoilers(case, directory):
        caplog.clear()
        seconds(10)
        found, collector = taken(case, directory, spoil)
        lost = {device(key) for key in whole.keys() - found.keys()}
        summed = {of for of in lost if of[:2] in {("node", ""), ("socket", "")} and not of[2]}
        assert len(lost - summed) <= 1, (what, lost)
        for key in whole.keys() & found.keys():
            if name not in UNLIKE and key not in AGGREGATES and key[0] not in OF_THIS_MACHINE:
                assert found[key] == like(whole[key]), (what, key)
        if len(devices) > 1:
            assert found, what
        if lost and found and what.endswith("garbage") and not NAMES.search(what):
            assert collector.soft.count > 0, what
            assert [each for each in caplog.records if each.levelno == logging.WARNING], what
            count, logged = collector.soft.count, len(caplog.records)
            list(collector.collect(3))
            assert collector.soft.count > count, what  # counted each time
            assert len(caplog.records) == logged, what  # logged once


words = st.one_of(
    st.integers(-2, 2**64 + 1).map(str),
    st.sampled_from(["0", "18446744073709551615", "9223372036854775808", "1_000", "٣", "kB", "-"]),
    st.sampled_from(["/dev/sda", "/a\\040b", "/\\000", "eth0:", ":", "cpu", "cpu1", "a\\134"]),
    st.text(max_size=8),
)


@st.composite
def readings(draw: st.DrawFn, file: str) -> bytes:
    if draw(st.integers(0, 3)) == 0:
        return draw(st.one_of(st.binary(max_size=200), st.text(max_size=200).map(str.encode)))
    return draw(variants((TREES / "captured/first/proc" / file).read_text()))


@st.composite
def variants(draw: st.DrawFn, text: str) -> bytes:
    lines = text.split("\n")
    for _ in range(draw(st.integers(0, 4))):
        line = draw(st.integers(0, len(lines) - 1))
        tokens = lines[line].split(" ")
        place = draw(st.integers(0, len(tokens) - 1))
        tokens[place : place + draw(st.integers(0, 2))] = draw(st.lists(words, max_size=2))
        lines[line] = " ".join(tokens)
    return "\n".join(lines).encode()


@pytest.mark.parametrize("file", READERS)
@given(data=st.data())
def test_collectors_give_valid_messages_or_dataerror_for_any_text(
    file: str, data: st.DataObject
) -> None:
    """No text raises anything else, nor gives a message that breaks a rule or cannot be sent."""
    with tempfile.TemporaryDirectory() as root:
        path = Path(root, "proc", file)
        for other in ("proc/self/mounts", "proc/diskstats"):
            Path(root, other).parent.mkdir(parents=True, exist_ok=True)
            Path(root, other).write_text("")
        path.parent.mkdir(exist_ok=True)
        collector = READERS[file](root=root)
        for _ in range(2):
            path.write_bytes(data.draw(readings(file)))
            try:
                messages = list(collector.collect(1))
            except DataError as error:
                assert str(error).startswith(str(path))  # noqa: PT017 - it may well not be raised
            else:
                for message in messages:
                    reported([message])


@pytest.mark.parametrize("tree", PACKED_READERS)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_collectors_accept_any_text_in_any_file_of_tree(
    tree: str, data: st.DataObject, tmp_path: Path
) -> None:
    """The same for each file of collectors that read many, one at a time."""
    if not (tmp_path / "root").exists():
        unpack((PACKED / f"{tree}.txt").read_text(), tmp_path / "root")
    root = str(tmp_path / "root")
    binary = "gpu_metrics"  # its own test draws bytes
    found = (tmp_path / "root").rglob("*")
    files = sorted(path for path in found if path.is_file() and path.name != binary)
    path = data.draw(st.sampled_from(files))
    text = path.read_text()
    collector = PACKED_READERS[tree](root=root)
    try:
        for _ in range(2):
            path.write_bytes(data.draw(variants(text)))
            try:
                messages = list(collector.collect(1))
            except DataError:
                continue
            reported(messages)
    finally:
        path.write_text(text)


@pytest.mark.parametrize("make", [*PACKED_READERS.values(), *READERS.values()])
def test_collectors_raise_filenotfounderror_without_files(
    tmp_path: Path, make: Callable[..., Any]
) -> None:
    """The sampler then disables the collector."""
    with pytest.raises(FileNotFoundError):
        list(make(root=str(tmp_path)).collect(0))


CPUFREQ = "sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq"
IB = "sys/class/infiniband/a/ports/1/counters/port_rcv_data"
NUMASTAT = "sys/devices/system/node/node0/numastat"
PSI = "proc/pressure/cpu"
ZONE = "sys/class/powercap/intel-rapl:0"
TEMP = "sys/class/hwmon/hwmon0/temp1_input"
STATS = "proc/fs/lustre/llite/a-ffff/stats"
MOUNTSTATS = "device s:/x mounted on /x with fstype nfs4 statvers=1.1\n\tbytes: 1 2 3"
AMD = "sys/class/drm/card0/device"
BAD: list[tuple[type[Any], dict[str, str], str]] = [
    (Clock, {CPUFREQ: "<unknown>"}, "'<unknown>' is not a number"),
    (Clock, {"proc/cpuinfo": "processor : 0\ncpu MHz : x"}, "line 2: .* is not a frequency"),
    (Cpu, {"proc/stat": ""}, "the line 'cpu' is missing"),
    (Cpu, {"proc/stat": "btime 5\ncpu 1 2 3"}, "line 2: 3 counters, not 4"),
    (Cpu, {"proc/stat": "cpu 1 2 x 4"}, "line 1: 'x' is not a counter"),
    (Cpu, {"proc/stat": "cpu 1 2 3 " + "9" * 20}, "line 1: '9{20}' is not a counter"),
    (InfiniBand, {IB: "x"}, "'x' is not a counter"),
    (InfiniBand, {IB: "-1"}, "'-1' is not a counter"),
    (InfiniBand, {IB: "18446744073709551616"}, "'18446744073709551616' is not a counter"),
    (Load, {"proc/loadavg": ""}, "'.*' are not load averages"),
    (Load, {"proc/loadavg": "0.1 0.2 0.3 1/2 3"}, "'0.1 .*' are not load averages"),
    (Load, {"proc/loadavg": "nan 0.00 0.00 1/2 3"}, "'nan .*' are not load averages"),
    (Load, {"proc/loadavg": "0.00 0.00 0.00 1/2 3 4"}, "'0.00 .*' are not load averages"),
    (Network, {"proc/net/dev": "eth0: 1 2 3"}, "line 1: 3 counters, not 16"),
    (Network, {"proc/net/dev": "\neth0:" + " 1" * 15 + " -1"}, "line 2: '-1' is not a counter"),
    (Network, {"proc/net/dev": " :" + " 1" * 16}, "line 1: the interface has no name"),
    (Numa, {NUMASTAT: "numa_hit 5"}, "'' is not a counter"),
    (Numa, {NUMASTAT: "numa_hit x"}, "'x' is not a counter"),
    (Pressure, {PSI: "some avg10=0.00"}, "line 1: .* is not a pressure"),
    (Pressure, {PSI: "none avg10=0.00 total=5"}, "line 1: .* is not a pressure"),
    (Processes, {"proc/7/stat": "7 (a) R 1"}, ".* is not a process"),
    (Processes, {"proc/7/stat": "7 (a) R " + "x " * 20}, ".* is not a process"),
    (Processes, {"proc/stat": "intr 5\nctxt 6"}, "'' is not a counter"),
    (Rapl, {f"{ZONE}/name": "package-0", f"{ZONE}/energy_uj": "x",
            f"{ZONE}/max_energy_range_uj": "9"}, "'x' is not a counter"),
    (Rapl, {f"{ZONE}/name": "dram"}, "dram belongs to no socket"),
    (Schedstat, {"proc/schedstat": "cpu0 1 2 3"}, "line 1: 0 counters, not 2"),
    (TopProcesses, {"proc/7/stat": "7 (a) R 1"}, ".* is not a process"),
    (Schedstat, {"proc/schedstat": "cpu0 1 2 3 4 5 6 x 8 9"}, "line 1: 'x' is not a counter"),
    (Temperature, {TEMP: "warm"}, "'warm' is not a number"),
    (Disk, {"proc/diskstats": "8 0 sda 1 2 3"}, "line 1: 3 counters, not 11"),
    (Disk, {"proc/diskstats": "8"}, "line 1: 0 counters, not 11"),
    (Disk, {"proc/diskstats": "8 0 sda" + " 1" * 16 + " 1x"}, "line 1: '1x' is not a counter"),
    (Lustre, {STATS: ""}, "snapshot_time is missing"),  # all counters would seem to be 0
    (Lustre, {STATS: "garbage"}, "snapshot_time is missing"),
    (LustreJobstats, {f"{OST}/job_stats": "garbage"}, "line 1: 'garbage' is not a line of job"),
    (LustreJobstats, {f"{OST}/job_stats": "- job_id: "}, "line 1: '' is not the id of a job"),
    (Nfs, {"proc/net/rpc/nfs": "proc4"}, "line 1: 0 counters, not 1"),
    (Nfs, {"proc/net/rpc/nfs": "proc3 2 5 x"}, "line 1: 'x' is not a counter"),
    (Nfs, {"proc/self/mountstats": MOUNTSTATS, "proc/net/rpc/nfs": ""}, "line 2: 3 counters"),
    (AmdGpu, {f"{AMD}/gpu_busy_percent": "all", f"{AMD}/vendor": "0x1002"},
     "'all' is not a number"),
    (AmdGpu, {f"{AMD}/ras/umc_err_count": "none", f"{AMD}/vendor": "0x1002"},
     "'none' is not a number of errors"),
]  # fmt: skip


@pytest.mark.parametrize(("make", "files", "reason"), BAD)
def test_collectors_name_invalid_file(
    tmp_path: Path, make: type[Any], files: dict[str, str], reason: str
) -> None:
    """If there is nothing else to read; the error names the first of these files."""
    blocks = "".join(f"## /{path}\n{text}\n" for path, text in files.items())
    unpack(f"@ first\n{blocks}@ second\n", tmp_path)
    place = f"{next(iter(files))}: " if make is not Rapl else f"{ZONE}: "
    with pytest.raises(DataError, match=place + reason):
        list(make(root=str(tmp_path)).collect(0))


def test_amd_gpu_ignores_gpu_of_other_vendor(tmp_path: Path) -> None:
    unpack(f"@ first\n## /{AMD}/vendor\n0x1a03\n@ second\n", tmp_path)
    with pytest.raises(FileNotFoundError):
        list(AmdGpu(root=str(tmp_path)).collect(0))


ALIASES = {"eno1": ["eth0", "enp5s0"], "virtual": ["ifb0", "ifb1"]}


@pytest.mark.parametrize(
    ("tree", "make", "devices"),
    [
        ("infiniband", partial(InfiniBand, exclude=["mlx5_*"]), {"qib0/2"}),
        ("lustre", partial(Lustre, exclude=["work", "ho*"]), {"scratch"}),
        ("nfs", partial(Nfs, exclude=["/mnt/*"]), {"/home"}),
        ("hwmon", Temperature, {"0/Package id 0", "1/Package id 1", "nvme-nvme0/Composite",
                                "nvme-nvme1/Composite", "acpitz-hwmon10/temp1"}),
        ("captured", Network, {"eth0", "ifb0", "ifb1"}),
        ("captured", partial(Network, exclude=["ifb*"]), {"lo", "eth0"}),
        ("captured", partial(Network, include=["eth0", "enp5s0"]), {"eth0"}),
        ("captured", partial(Network, include=["e*", "ifb*"], exclude=["ifb1"]), {"eth0", "ifb0"}),
        # Aliases are what include and exclude take; the tag has the name on the node.
        ("captured", partial(Network, include=["eno1"], interface_aliases=ALIASES), {"eth0"}),
        ("captured", partial(Network, exclude=["lo", "virtual"], interface_aliases=ALIASES),
         {"eth0"}),
    ],
)  # fmt: skip
def test_collectors_exclude_devices_by_pattern(
    root: Root, tree: str, make: Callable[..., Any], devices: set[str]
) -> None:
    root.show(f"{tree}/first")
    assert {device for _, device in reported(make(root=str(root)).collect(0))} == devices


def test_network_escapes_name_of_interface(tmp_path: Path) -> None:
    """Characters that a tag cannot have are percent-encoded."""
    unpack("@ first\n## /proc/net/dev\na\x01b\\:" + " 1" * 16 + "\n@ second\n", tmp_path)
    found = reported(Network(root=str(tmp_path)).collect(0))
    assert {device for _, device in found} == {"a%01b%5C"}


def test_slow_collectors_run_once_a_minute() -> None:
    assert Ipmi.INTERVAL == Smartmon.INTERVAL == 60
