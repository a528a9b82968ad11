"""Speed of decoding Sonar's JSON, compared with ``json.loads`` on the same bytes in one run.

::

    python -m benchmarks.sonar.decode
"""

import json
import random
import time
from collections.abc import Callable

from ccpipe.formats import sonar

RUNS = 15
LOOPS = 100


def sample() -> bytes:
    """Return an envelope of some 37 KB, as Sonar writes it: a busy node of 128 hardware threads."""
    rng = random.Random(1)
    jobs = tuple(
        sonar.SampleJob(1000 + job, f"user{job}", 0, tuple(process(rng) for _ in range(25)))
        for job in range(7)
    )
    system = sonar.SampleSystem(
        cpus=tuple(rng.randrange(10**6) for _ in range(128)), used_memory=77468396, load1=1.5
    )
    attributes = sonar.SampleAttributes(
        "2025-04-07T14:17:11+02:00", "fox.educloud.no", "c1-5.fox", system, jobs
    )
    envelope = sonar.SampleEnvelope(
        sonar.MetadataObject("sonar", "0.19.0"), sonar.SampleData(attributes)
    )
    return sonar.encode(envelope, profile="sonar")


def process(rng: random.Random) -> sonar.SampleProcess:
    """Return a process with all fields that one usually has."""
    return sonar.SampleProcess(
        resident_memory=rng.randrange(10**7),
        virtual_memory=rng.randrange(10**8),
        cmd="pmemd.cuda",
        pid=rng.randrange(10**6),
        ppid=rng.randrange(10**6),
        num_threads=rng.randrange(16),
        cpu_avg=round(rng.random() * 100, 1),
        cpu_util=round(rng.random() * 100, 1),
        cpu_time=rng.randrange(10**6),
        data_read=rng.randrange(10**6),
        data_written=rng.randrange(10**6),
    )


def seconds(work: Callable[[], object]) -> float:
    """Return the CPU seconds of one call: the least of some runs."""
    minimum = float("inf")
    for _ in range(RUNS):
        start = time.process_time()
        for _ in range(LOOPS):
            work()
        minimum = min(minimum, (time.process_time() - start) / LOOPS)
    return minimum


def main() -> None:
    """Print one line for each way of reading the envelope."""
    payload = sample()
    unknown = payload.replace(b'"jobs":[', b'"new":1,"jobs":[', 1)
    (envelope,) = sonar.decode(payload)
    ways: dict[str, Callable[[], object]] = {
        "json.loads": lambda: json.loads(payload),
        "decode": lambda: sonar.decode(payload),
        "decode, strict": lambda: sonar.decode(payload, strict=True),
        "decode, a field unknown": lambda: sonar.decode(unknown),
        "encode": lambda: sonar.encode(envelope),
    }
    base = seconds(ways["json.loads"])
    print(f"{len(payload)} bytes")
    for name, work in ways.items():
        taken = seconds(work)
        speed = len(payload) / taken / 1e6
        print(f"{name:24} {taken * 1e6:7.0f} us {speed:6.0f} MB/s {base / taken:5.2f} x json.loads")


if __name__ == "__main__":
    main()
