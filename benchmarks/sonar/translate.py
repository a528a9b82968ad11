"""Speed of translating Sonar's samples to line protocol and back: lines per CPU-second.

::

    python -m benchmarks.sonar.translate

Four nodes, each of which sends 60 samples, a minute apart. `reference`: 38 KB, 128 hardware
threads, 4 GPUs and 100 processes in 10 jobs, each on a GPU. `typical`: the same without processes
on GPUs. `processes`: 37 KB, 175 processes, which are summed up by job, so that there are few lines
for many bytes. `hardware`: 256 hardware threads, 8 GPUs, 8 disks and few processes, so that there
is about a line for each number.

Each step of each sample is timed by itself, in the best of some rounds, since whatever else runs
here can only make it slower. The first samples, which make the series known, do not count.
"""

import json
import random
import time
from collections.abc import Callable, Iterator, Sequence

from msgspec.structs import replace

from benchmarks.sonar.decode import process
from ccpipe.formats import sonar
from ccpipe.formats.lineprotocol import decode, encode
from ccpipe.translate.sonar.cc_to_sonar import CcToSonar
from ccpipe.translate.sonar.sonar_to_cc import SonarToCc

SAMPLES = 60
FIRST = 3
ROUNDS = 25
START = 1_740_000_000

NODES = {
    # hardware threads, jobs, processes of each, GPUs, disks, whether processes are on GPUs
    "reference": (128, 10, 10, 4, 2, True),
    "typical": (128, 10, 10, 4, 1, False),
    "processes": (128, 7, 25, 0, 0, False),
    "hardware": (256, 8, 4, 8, 8, False),
}


def node(
    hwthreads: int, jobs: int, processes: int, gpus: int, disks: int, on_gpus: bool
) -> Iterator[bytes]:
    """Yield a node's samples, a minute apart, as Sonar writes them."""
    rng = random.Random(1)
    first = []
    for job in range(jobs):
        used = (on(rng, job % gpus),) if on_gpus else ()
        held = tuple(replace(process(rng), gpus=used) for _ in range(processes))
        first.append(sonar.SampleJob(1000 + job, f"user{job}", 0, held))
    for minute in range(SAMPLES):
        system = sonar.SampleSystem(
            cpus=tuple(10**5 + 60 * minute - cpu % 50 * minute for cpu in range(hwthreads)),
            gpus=tuple(gpu(index, minute) for index in range(gpus)),
            used_memory=77468396 + minute,
            load1=1.5,
            boot="2025-02-01T00:00:00+00:00",
            disks=tuple(
                sonar.SampleDisk(f"sd{i}", 8, 16 * i, (1000 * minute + i,) * 17)
                for i in range(disks)
            ),
        )
        attributes = sonar.SampleAttributes(
            sonar.timestamp.write((START + 60 * minute) * 10**9),
            "fox.educloud.no",
            "c1-5.fox",
            system,
            tuple(later(job, minute) for job in first),
        )
        meta = sonar.MetadataObject("sonar", "0.19.0")
        envelope = sonar.SampleEnvelope(meta, sonar.SampleData(attributes))
        yield sonar.encode(envelope, profile="sonar")


def uuid(index: int) -> str:
    """Return a GPU's UUID."""
    return f"GPU-{index}e1d8a2a-7c41-5a1e-9f0c-3b1f7d0c{index:04}"


def gpu(index: int, minute: int) -> sonar.SampleGpu:
    """Return a busy GPU."""
    return sonar.SampleGpu(
        index=index,
        uuid=uuid(index),
        performance_state=sonar.ExtendedUint(2),
        memory=10**7 + minute,
        ce_util=minute,
        temperature=60,
        power=300 + minute,
        power_limit=700,
        ce_clock=1980,
        memory_clock=2619,
    )


def on(rng: random.Random, index: int) -> sonar.SampleProcessGpu:
    """Return a process's usage of a GPU."""
    return sonar.SampleProcessGpu(
        index=index,
        uuid=uuid(index),
        gpu_util=round(rng.random() * 100, 1),
        gpu_memory=rng.randrange(10**7),
        gpu_memory_util=round(rng.random() * 100, 1),
    )


def later(job: sonar.SampleJob, minute: int) -> sonar.SampleJob:
    """Return a job some minutes on."""
    processes = tuple(
        replace(p, cpu_time=p.cpu_time + 60 * minute, data_read=p.data_read + minute)
        for p in job.processes
    )
    return replace(job, processes=processes)


Clock = Callable[[], float]


def forth(payloads: Sequence[bytes], *, envelopes: bool = False) -> list[float]:
    """Return the microseconds of a sample: json.loads, decode, translate, free, encode."""
    best = [[1.0] * len(payloads) for _ in range(5)]
    clock: Clock = time.process_time
    for _ in range(ROUNDS):
        translator = SonarToCc(envelopes=envelopes)
        for index, payload in enumerate(payloads):
            times = [clock()]
            json.loads(payload)
            times.append(clock())
            decoded = sonar.decode(payload)
            times.append(clock())
            lines = translator.feed(decoded)
            times.append(clock())
            del decoded
            times.append(clock())
            encode(lines)
            times.append(clock())
            for step in range(5):
                taken = times[step + 1] - times[step]
                best[step][index] = min(taken, best[step][index])
    return [sum(step[FIRST:]) / (len(payloads) - FIRST) * 1e6 for step in best]


def back(written: Sequence[bytes]) -> float:
    """Return the microseconds that a sample's lines take to be decoded and to become a sample."""
    best = 1.0
    for _ in range(ROUNDS // 5):
        translator = CcToSonar()
        translator.clock = lambda: 0.0
        start = time.process_time()
        for payload in written:
            translator.feed(decode(payload))
        translator.flush()
        best = min(best, time.process_time() - start)
    return best / len(written) * 1e6


def main() -> None:
    """Print one line for each node: microseconds of a sample, then million lines a second."""
    print("us of a sample, then M lines/s")
    print(
        "node         KB lines json.loads decode translate free encode"
        " | decoded too, encoded too, with events, back"
    )
    for name, made in NODES.items():
        payloads = list(node(*made))
        translator = SonarToCc(envelopes=False)
        written = [encode(translator.feed(sonar.decode(payload))) for payload in payloads]
        lines = written[-1].count(b"\n")
        loads, *steps = forth(payloads)
        _, *with_events = forth(payloads, envelopes=True)
        speeds = (
            lines / us for us in (sum(steps[:3]), sum(steps), sum(with_events), back(written))
        )
        print(
            f"{name:10} {len(payloads[-1]) / 1000:4.1f} {lines:5} {loads:10.0f}"
            + "{:7.0f}{:10.0f}{:5.0f}{:7.0f} |".format(*steps)
            + "{:12.2f}{:13.2f}{:13.2f}{:6.2f}".format(*speeds)
        )


if __name__ == "__main__":
    main()
