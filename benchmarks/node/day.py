"""A day of the node agent on recorded trees, on a simulated clock.

::

    python -m benchmarks.node.day [HOURS]

All collectors that read files sample every 10 s what ``tests/data/recorded`` and the made trees
show them; the sampler's sleeps take no time. The clock runs 100 ppm fast, sleeps last up to 20 ms
too long, and a sample is taken up to 200 ms after its slot. The day runs in this process, whose own
memory (USS) is measured every hour, after a garbage collection.

glibc raises the size from which memory is mapped, not taken from the heap, by itself. CPython's
table of interned strings (2 MB here, rebuilt now and then) then tears holes into the heap, which
grows by some MiB a day. Run it as the service runs, with ``MALLOC_MMAP_THRESHOLD_=131072``.
"""

import os
import sys
import tempfile
import time
from pathlib import Path

import psutil

from ccpipe.message import Message
from tests.node.recorded_day import INTERVAL, Clocks, live

HOUR = 3600 // INTERVAL


def main(hours: int = 24) -> None:
    """Print the results of the day."""
    process = psutil.Process()
    metrics = 0

    def see(messages: list[Message]) -> None:
        nonlocal metrics
        metrics += len(messages)

    with tempfile.TemporaryDirectory() as directory:
        began, spent = time.perf_counter(), time.process_time()
        day = live(
            Path(directory),
            hours * HOUR,
            clocks=Clocks(fast=1e-4, oversleep=0.02),
            jitter=0.2,
            cycle=HOUR,
            size=lambda: process.memory_full_info().uss,
            see=see,
        )
        took, spent = time.perf_counter() - began, time.process_time() - spent
    quarter = max(1, len(day.slots) // 4)
    first, last = day.lateness[:quarter], day.lateness[-quarter:]
    drift = sum(last) / len(last) - sum(first) / len(first)
    settled = day.sizes[min(1, len(day.sizes) - 1)]
    rows = {
        "mmap threshold": os.environ.get("MALLOC_MMAP_THRESHOLD_", "as glibc chooses"),
        "slots": f"{len(day.slots)} ({hours} h, every {INTERVAL} s), {metrics} metrics",
        "missing, double": f"{day.missing}, {day.double}; counted as missed: {day.missed}",
        "late": f"{min(day.lateness) * 1000:.1f} to {max(day.lateness) * 1000:.1f} ms",
        "drift": f"{drift * 1000:+.1f} ms from the first quarter's mean lateness to the last's",
        "memory": f"{settled / 2**20:.1f} MiB after 2 h, {day.sizes[-1] / 2**20:.1f} MiB at the "
        f"end, at most {max(day.sizes) / 2**20:.1f} MiB",
        "growth after 2 h": f"{(day.sizes[-1] - settled) / 1024:+.0f} KiB; hour by hour, in MiB: "
        + " ".join(f"{size / 2**20:.1f}" for size in day.sizes),
        "took": f"{took:.1f} s: {len(day.slots) * INTERVAL / took:.0f} x; "
        f"{spent / len(day.slots) * 1000:.2f} ms of processor time a slot",
    }
    for name, text in rows.items():
        print(f"{name:20}{text}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:2]))
