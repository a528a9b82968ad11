"""How fast Sonar's samples become line protocol, and lines samples: lines for a CPU-second.

::

    python -m benchmarks.bench_sonar_translate

Two nodes. `processes`: 37 KB, 128 hardware threads and 175 processes, which are summed up by job,
so that there are few lines for many bytes. `hardware`: 256 hardware threads, 8 cards, 8 disks and
32 processes, so that there is about a line for each number.
"""

import random
from collections.abc import Callable, Iterable, Iterator

from msgspec.structs import replace

from benchmarks.bench_sonar import process
from benchmarks.timing import rate
from ccpipe.formats import sonar
from ccpipe.formats.lineprotocol import decode, encode
from ccpipe.translate.cc_to_sonar import CcToSonar
from ccpipe.translate.sonar_to_cc import SonarToCc

SAMPLES = 300
BLOCK = 20
START = 1_740_000_000


def node(hwthreads: int, jobs: int, processes: int, gpus: int, disks: int) -> Iterator[bytes]:
    """Yield a node's samples, a minute apart, as Sonar writes them."""
    rng = random.Random(1)
    first = [
        sonar.SampleJob(1000 + job, f"user{job}", 0, tuple(process(rng) for _ in range(processes)))
        for job in range(jobs)
    ]
    for minute in range(SAMPLES):
        system = sonar.SampleSystem(
            cpus=tuple(10**5 + 60 * minute - cpu % 50 * minute for cpu in range(hwthreads)),
            gpus=tuple(card(index, minute) for index in range(gpus)),
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


def card(index: int, minute: int) -> sonar.SampleGpu:
    """Return a card that is busy."""
    return sonar.SampleGpu(
        index=index,
        uuid=f"GPU-{index}-1e1d8a2a",
        performance_state=sonar.ExtendedUint(2),
        memory=10**7 + minute,
        ce_util=minute,
        temperature=60,
        power=300 + minute,
        power_limit=700,
        ce_clock=1980,
        memory_clock=2619,
    )


def later(job: sonar.SampleJob, minute: int) -> sonar.SampleJob:
    """Return a job some minutes on."""
    processes = tuple(
        replace(p, cpu_time=p.cpu_time + 60 * minute, data_read=p.data_read + minute)
        for p in job.processes
    )
    return replace(job, processes=processes)


def lines_of(payloads: list[bytes], *, envelopes: bool) -> list[bytes]:
    """Decode and translate; return the line protocol."""
    translator = SonarToCc(envelopes=envelopes)
    return [encode(translator.feed(sonar.decode(payload).envelopes)) for payload in payloads]


def samples_of(payloads: list[bytes]) -> int:
    """Decode line protocol and translate it; return how many samples there were."""
    translator = CcToSonar()
    translator.clock = lambda: 0.0
    count = sum(len(translator.feed(decode(payload))) for payload in payloads)
    return count + len(translator.flush())


def main() -> None:
    """Print one line for each node and way."""
    for name, made in {
        "processes": list(node(128, 7, 25, 0, 0)),
        "hardware": list(node(256, 8, 4, 8, 8)),
    }.items():
        written = lines_of(made, envelopes=False)
        lines = sum(payload.count(b"\n") for payload in written)
        envelopes = [sonar.decode(payload).envelopes for payload in made]
        blocks = [b"".join(made[start : start + BLOCK]) for start in range(0, SAMPLES, BLOCK)]
        ways: dict[str, Callable[[], object]] = {
            "decode": lambda made=made: [sonar.decode(payload) for payload in made],
            "translate": lambda envelopes=envelopes: translated(envelopes),
            "decode, translate": lambda made=made: translated(
                sonar.decode(payload).envelopes for payload in made
            ),
            "decode, translate, encode": lambda made=made: lines_of(made, envelopes=False),
            "the same, 20 to a payload": lambda blocks=blocks: lines_of(blocks, envelopes=False),
            "the same with events": lambda made=made: lines_of(made, envelopes=True),
            "and back": lambda written=written: samples_of(written),
        }
        print(f"{name}: {len(made[-1])} bytes, {lines / SAMPLES:.0f} lines an envelope")
        for what, work in ways.items():
            speed = rate(work, lines, seconds=2)
            print(f"  {what:28} {speed / 1e6:6.2f} M lines/s {SAMPLES / lines * speed:8.0f} env/s")


def translated(envelopes: Iterable[list[sonar.Envelope]]) -> None:
    """Translate envelopes to lines, as columns."""
    translator = SonarToCc(envelopes=False)
    for some in envelopes:
        translator.feed(some)


if __name__ == "__main__":
    main()
