"""One bad reading costs only itself: every collector, with each of its files spoilt in turn."""

import logging
import re
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from ccpipe.errors import DataError
from ccpipe.message import Message
from ccpipe.node.collectors.clock import Clock
from ccpipe.node.collectors.cpu import Cpu
from ccpipe.node.collectors.gpu.amd_gpu import AmdGpu
from ccpipe.node.collectors.infiniband import InfiniBand
from ccpipe.node.collectors.memory import Memory
from ccpipe.node.collectors.network import Network
from ccpipe.node.collectors.numa import Numa
from ccpipe.node.collectors.pressure import Pressure
from ccpipe.node.collectors.processes import Processes
from ccpipe.node.collectors.rapl import Rapl
from ccpipe.node.collectors.schedstat import Schedstat
from ccpipe.node.collectors.slurm_cgroup import SlurmCgroup
from ccpipe.node.collectors.storage.disk import Disk
from ccpipe.node.collectors.storage.lustre import Lustre
from ccpipe.node.collectors.storage.nfs import Nfs
from ccpipe.node.collectors.temperature import Temperature
from tests.node.conftest import PACKED, TREES, unpack

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

GARBAGE = "N/A (no PMA)\n"
NAMES = re.compile(r"/(name|vendor|\w+_label) garbage|/mountstats:|/mounts garbage")
"""What holds names, of which any may be right."""
Key = tuple[str, ...]


class Case(NamedTuple):
    """A collector, and a tree that it reads."""

    make: Callable[..., Any]
    tree: str
    by_lines: tuple[str, ...] = ()
    """Files without which nothing is known, of which lines are spoilt."""


CASES = {
    "infiniband": Case(InfiniBand, "infiniband"),
    "lustre": Case(Lustre, "lustre"),
    "temperature": Case(Temperature, "hwmon"),
    "rapl": Case(Rapl, "rapl"),
    "clock": Case(Clock, "clock"),
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
}


def test_every_collector_is_spoilt_here_or_elsewhere() -> None:
    names = {each.name for each in entry_points(group="ccpipe.collectors")}
    assert {name.partition("-")[0] for name in CASES} | OTHERWISE.keys() == {
        name for name in names if name.isidentifier()
    }


def put(tree: str, reading: str, folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    if (TREES / tree).is_dir():
        shutil.copytree(TREES / tree / reading, folder)
        return
    unpack((PACKED / f"{tree}.txt").read_text(), folder, reading)


def taken(case: Case, folder: Path, spoil: Callable[[], object]) -> tuple[dict[Key, Any], Any]:
    put(case.tree, "first", folder)
    collector = case.make(root=str(folder))
    list(collector.collect(1))
    put(case.tree, "second", folder)
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


def spoilers(case: Case, folder: Path) -> Iterator[tuple[str, Callable[[], object]]]:
    put(case.tree, "second", folder)
    files = sorted(path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    for path in files:
        name = str(path.relative_to(folder))
        if name in case.by_lines:
            lines = path.read_text().splitlines()
            for number, line in enumerate(lines):
                first = line[: len(line) - len(line.lstrip())] + (line.split() or [""])[0]
                bad = "\n".join([*lines[:number], f"{first} x y z", *lines[number + 1 :]]) + "\n"
                yield (
                    f"{name}:{number + 1} garbage",
                    partial(path.write_text, bad),
                )
        else:
            yield f"{name} garbage", partial(path.write_text, GARBAGE)
            yield f"{name} empty", partial(path.write_text, "")
            yield f"{name} missing", path.unlink
            yield (
                f"{name} EIO",
                partial(fail, path),
            )


def fail(path: Path) -> None:
    path.unlink()
    path.symlink_to("/proc/self/mem")


def device(key: Key) -> Key:
    return (*key[1:3], "", "") if key[1] == "accelerator" else key[1:]


@pytest.mark.parametrize("name", CASES)
def test_spoilt_reading_costs_only_itself(
    name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, seconds: Any
) -> None:
    """At most one device loses metrics, the values of the others stay, and garbage is logged."""
    case, folder = CASES[name], tmp_path / "root"
    seconds(10)
    whole, _ = taken(case, folder, lambda: None)
    devices = {device(key) for key in whole}
    assert whole
    for what, spoil in spoilers(case, folder):
        caplog.clear()
        seconds(10)
        found, collector = taken(case, folder, spoil)
        lost = {device(key) for key in whole.keys() - found.keys()}
        summed = {of for of in lost if of[:2] in {("node", ""), ("socket", "")} and not of[2]}
        assert len(lost - summed) <= 1, (what, lost)
        for key in whole.keys() & found.keys():
            if device(key) not in lost and device(key)[3] and name != "processes":
                assert found[key] == pytest.approx(whole[key], rel=1e-3), (what, key)
        if len(devices) > 1:
            assert found, what
        if lost and found and what.endswith("garbage") and not NAMES.search(what):
            assert collector.soft.count > 0, what
            assert [each for each in caplog.records if each.levelno == logging.WARNING], what
            count, logged = collector.soft.count, len(caplog.records)
            list(collector.collect(3))
            assert collector.soft.count > count, what  # counted each time
            assert len(caplog.records) == logged, what  # logged once
