"""Cost of a sample of this node: collectors and Sonar, compared with psutil and ``ps aux``.

::

    python -m benchmarks.node.agent [samples [processes]]

The node is filled up to 300 processes, or as many as are given (which sleep). All figures are
processor time of this process and its children, in one run, so that their ratios are valid on a
busy machine too. For memory and slots over a whole day see ``benchmarks.node.day``.
"""

import asyncio
import contextlib
import functools
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil

from ccpipe.formats.sonar import encode
from ccpipe.node.agent.parts import PORTABLE
from ccpipe.node.collectors.processes import Processes
from ccpipe.node.collectors.sonar.sample import SonarSample
from ccpipe.node.collectors.sonar.sysinfo import SonarSysinfo
from ccpipe.node.sampling.collector import Collector, CollectorGroup
from ccpipe.node.sampling.sampler import Sampler, SamplerSettings
from ccpipe.registry import construct, entry_points, find

PROCESSES = 300
INTERVAL = 0.2
BUDGET = 0.025
OPTIONS: dict[str, dict[str, Any]] = {
    "cpu": {"hwthreads": ["*"]},
    "memory": {"domains": True},
}
FIRST_SAMPLE = "import benchmarks.node.agent as b; b.sampled(b.collectors(), 1, once=True)"


def main(samples: int = 50, processes: int = PROCESSES) -> None:
    """Print the costs as a table."""
    with filled(processes):
        each = {
            name: processor_time(functools.partial(_sample, collector), samples)
            for name, collector in collectors().items()
        }
        whole, messages = sampled(collectors(), samples)
        together = processor_time(with_sonar(), samples)
        sonar = {
            "Sonar's sample, every process": processor_time(sonar_sample(system=True), samples),
            "Sonar's sample, users' processes": processor_time(sonar_sample(system=False), samples),
            "Sonar's sysinfo, without lstopo": processor_time(sonar_sysinfo(), 5),
        }
        others = {
            "psutil: node and processes": processor_time(with_psutil, samples),
            "ps aux": processor_time(with_ps, max(5, samples // 2)),
        }
        started = time.perf_counter()
        command = [sys.executable, "-c", FIRST_SAMPLE]
        subprocess.run(command, check=True, cwd=Path(__file__).parents[2])  # noqa: S603
        start = time.perf_counter() - started
        count = len(psutil.pids())
    print(f"{count} processes, {os.cpu_count()} hardware threads, {samples} samples")
    print("processor time of one sample:\n")
    for name, seconds in sorted(each.items(), key=lambda item: -item[1]):
        print(f"{name:32}{seconds * 1000:8.2f} ms")
    print(f"{'all, one after the other':32}{sum(each.values()) * 1000:8.2f} ms\n")
    for name, seconds in sonar.items():
        print(f"{name:32}{seconds * 1000:8.2f} ms")
    print(f"{'all and every process for Sonar':32}{together * 1000:8.2f} ms, from one walk\n")
    for name, seconds in {f"sampler: {messages} metrics": whole, **others}.items():
        print(f"{name:32}{seconds * 1000:8.2f} ms {seconds / whole:8.2f} x the sampler's")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"\nof a hardware thread at 10 s     {whole / 10:8.2%}")
    print(f"within the budget of {BUDGET * 1000:.0f} ms       {whole <= BUDGET}")
    print(f"with Sonar's sample             {together <= BUDGET}")
    print(f"most memory of this process     {peak:8.1f} MiB")
    print(f"start to end of the first sample{start:8.2f} s, with the pause between two readings")


def collectors() -> dict[str, Collector]:
    """Make every collector that is installed and finds something here.

    Not the portable one, which measures what others do, and no groups, which are configured first.
    """
    made: dict[str, Collector] = {}
    for name in entry_points("collectors").keys() - {PORTABLE}:
        cls = find("collectors", name, "")
        options = OPTIONS.get(name, {})
        collector = construct(cls, options, where="bench", path=name, context={})
        if isinstance(collector, CollectorGroup):
            continue
        with contextlib.suppress(OSError):
            list(collector.collect(0))
            made[name] = collector
    return made


def _sample(collector: Collector) -> None:
    list(collector.collect(time.time_ns()))  # another slot: a walk is shared within one


def sonar_sample(*, system: bool) -> Callable[[], None]:
    """Return what takes and encodes Sonar's sample, perhaps with the system's own processes."""
    collector = SonarSample(cluster="c", node="n", exclude_system_jobs=not system)
    return lambda: _encode(collector, time.time_ns())


def sonar_sysinfo() -> Callable[[], None]:
    """Return what describes the node and encodes that."""
    collector = SonarSysinfo(cluster="c", node="n", lstopo=False)
    return lambda: _encode(collector, time.time_ns())


def with_sonar() -> Callable[[], None]:
    """Return a function that runs all collectors and Sonar's sample of processes in one scan."""
    chosen = collectors()
    states = chosen.get("processes")
    table = states.table if isinstance(states, Processes) else None
    sonar = SonarSample(cluster="c", node="n", table=table, exclude_system_jobs=False)

    def sample() -> None:
        slot = time.time_ns()
        for collector in chosen.values():
            list(collector.collect(slot))
        _encode(sonar, slot)

    return sample


def _encode(collector: SonarSample | SonarSysinfo, slot: int) -> None:
    for envelope in collector.collect(slot):
        encode(envelope)


def processor_time(work: Callable[[], object], times: int) -> float:
    """Return the seconds of processor time that one of so many calls takes, children's too."""
    before = spent()
    for _ in range(times):
        work()
    return (spent() - before) / times


def spent() -> float:
    """Return the processor time of this process and its children that ended."""
    both = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in both)


def sampled(chosen: dict[str, Collector], samples: int, *, once: bool = False) -> tuple[float, int]:
    """Return the processor time of one slot with all collectors, and the metrics it gives."""

    async def run() -> tuple[float, int]:
        sampler = Sampler(
            SamplerSettings(
                chosen, interval=INTERVAL, tags={"cluster": "c", "hostname": "n"}, timeout=9
            ),
            once=once,
        )
        before, count, messages = spent(), 0, 0
        async for batch in sampler.batches():
            count += 1
            messages = len(batch.records)
            if count == samples:
                sampler.stop()
        return (spent() - before) / count, messages

    return asyncio.run(run())


def with_psutil() -> None:
    """Read about the same with psutil: the node, and the usual values of each process."""
    psutil.cpu_times(percpu=True)
    psutil.virtual_memory()
    psutil.swap_memory()
    psutil.disk_io_counters(perdisk=True)
    psutil.net_io_counters(pernic=True)
    psutil.getloadavg()
    for part in psutil.disk_partitions():
        psutil.disk_usage(part.mountpoint)
    list(psutil.process_iter(["name", "status", "num_threads", "cpu_times", "memory_info"]))


def with_ps() -> None:
    """Run ``ps aux``."""
    subprocess.run(["ps", "aux"], check=True, stdout=subprocess.DEVNULL)  # noqa: S607


@contextlib.contextmanager
def filled(processes: int = PROCESSES) -> Iterator[None]:
    """Fill the node up with processes that sleep."""
    lacking = max(0, processes - len(psutil.pids()))
    sleepers = [subprocess.Popen(["sleep", "600"]) for _ in range(lacking)]  # noqa: S607
    try:
        yield
    finally:
        for sleeper in sleepers:
            sleeper.kill()
            sleeper.wait()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:3]))
