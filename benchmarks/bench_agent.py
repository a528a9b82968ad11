"""What a sample of this node costs: all collectors, beside psutil and ``ps aux``.

::

    python -m benchmarks.bench_agent [samples]

The node is filled up to 300 processes (which sleep). All figures are processor time of this
process and its children, in one run, so that their ratios hold on a busy machine too.
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

from ccpipe.registry import construct, find, names
from ccpipe.sources import sampler as sampler_module
from ccpipe.sources.sampler import Collector, Sampler

PROCESSES = 300
INTERVAL = 0.2
BUDGET = 0.025
OPTIONS: dict[str, dict[str, Any]] = {
    "clock": {"hwthreads": True},
    "cpu": {"hwthreads": True},
    "memory": {"domains": True},
}
FIRST_SAMPLE = "import benchmarks.bench_agent as b; b.sampled(b.collectors(), 1, once=True)"


def main(samples: int = 50) -> None:
    """Print the costs as a table."""
    with filled():
        each = {
            name: processor_time(functools.partial(_sample, collector), samples)
            for name, collector in collectors().items()
        }
        whole, messages = sampled(collectors(), samples)
        others = {
            "psutil: node and processes": processor_time(with_psutil, samples),
            "ps aux": processor_time(with_ps, max(5, samples // 2)),
        }
        started = time.perf_counter()
        command = [sys.executable, "-c", FIRST_SAMPLE]
        subprocess.run(command, check=True, cwd=Path(__file__).parents[1])  # noqa: S603
        start = time.perf_counter() - started
        count = len(psutil.pids())
    print(f"{count} processes, {os.cpu_count()} hardware threads, {samples} samples")
    print("processor time of one sample:\n")
    for name, seconds in sorted(each.items(), key=lambda item: -item[1]):
        print(f"{name:32}{seconds * 1000:8.2f} ms")
    print(f"{'all, one after the other':32}{sum(each.values()) * 1000:8.2f} ms\n")
    for name, seconds in {f"sampler: {messages} metrics": whole, **others}.items():
        print(f"{name:32}{seconds * 1000:8.2f} ms {seconds / whole:8.2f} x the sampler's")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"\nof a hardware thread at 10 s     {whole / 10:8.2%}")
    print(f"within the budget of {BUDGET * 1000:.0f} ms       {whole <= BUDGET}")
    print(f"most memory of this process     {peak:8.1f} MiB")
    print(f"start to end of the first sample{start:8.2f} s, with the pause between two readings")
    print(f"\na day of slots every 10 s: {day()}")


def collectors() -> dict[str, Collector]:
    """Make every collector that is installed and finds something here."""
    made: dict[str, Collector] = {}
    for name in names("collectors"):
        cls = find("collectors", name, "")
        options = OPTIONS.get(name, {})
        collector = construct(cls, options, where="bench", path=name, context={})
        with contextlib.suppress(OSError):
            list(collector.collect(0))
            made[name] = collector
    return made


def _sample(collector: Collector) -> None:
    list(collector.collect(0))


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
            chosen, interval=INTERVAL, tags={"cluster": "c", "hostname": "n"}, once=once, patience=9
        )
        before, count, messages = spent(), 0, 0
        async for batch in sampler:
            count += 1
            messages = len(batch.records)
            if count == samples:
                sampler.stop()
        return (spent() - before) / count, messages

    return asyncio.run(run())


class Clocks:
    """Stands in for the module ``time`` in the sampler: time passes when it sleeps."""

    def __init__(self) -> None:
        self.passed = 0

    def time_ns(self) -> int:
        """Tell the wall clock's time."""
        return 1_740_027_953 * 10**9 + self.passed

    def monotonic(self) -> float:
        """Tell the time that passed."""
        return self.passed / 1e9


class Simulated(Sampler):
    """A sampler whose sleeps take no time."""

    clocks = Clocks()

    async def _pause(self, seconds: float) -> bool:
        self.clocks.passed += round(seconds * 1e9)
        return not self._stopped.is_set()


def day(slots: int = 8640) -> str:
    """Sample a day's slots as fast as this machine can; say what is missing, double, or grew."""
    vars(sampler_module)["time"] = Simulated.clocks
    sampler = Simulated(
        collectors(), interval=10, jitter=0.2, tags={"cluster": "c", "hostname": "n"}, patience=60
    )
    sizes: list[int] = []
    process = psutil.Process()

    async def run() -> tuple[int, int, int]:
        count = missing = double = last = 0
        async for batch in sampler:
            slot = batch.records[0].time // 10**10
            count += 1
            missing += max(0, slot - last - 1) if last else 0
            double += slot == last
            last = slot
            if count % (slots // 24) == 0:
                sizes.append(process.memory_info().rss)
            if count == slots:
                sampler.stop()
        return count, missing, double

    began = time.perf_counter()
    count, missing, double = asyncio.run(run())
    took = time.perf_counter() - began
    vars(sampler_module)["time"] = time
    grew = (sizes[-1] - sizes[3]) / 1024
    return (
        f"{count} in {took:.0f} s ({slots * 10 / took:.0f} x), {missing} missing, {double} double, "
        f"memory grew by {grew:.0f} KiB after 4 h"
    )


def with_psutil() -> None:
    """Ask psutil for about the same: the node, and of each process what a monitor wants."""
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
def filled() -> Iterator[None]:
    """Fill the node up with processes that sleep."""
    lacking = max(0, PROCESSES - len(psutil.pids()))
    sleepers = [subprocess.Popen(["sleep", "600"]) for _ in range(lacking)]  # noqa: S607
    try:
        yield
    finally:
        for sleeper in sleepers:
            sleeper.kill()
            sleeper.wait()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:2]))
