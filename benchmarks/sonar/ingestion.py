"""CPU time of Sonar's samples of a cluster, through the recipe ``sonar-to-cc``, and of others.

::

    python -m benchmarks.sonar.ingestion --peer PATH

1000 nodes send samples of 300 processes in 10 jobs each; in every sample a process of each node has
ended and another has begun. The first two samples make the series known and do not count; of the
others the one that took least does, as of the peers' three rounds. The bridge runs the shipped
recipe, with its state file, from a stream into the broker; it is paused while samples are
published. The peer is ``benchmarks/peers/sonar``, which reads the same samples from a file. Writes
``benchmarks/sonar/results.md``.
"""

import argparse
import asyncio
import contextlib
import gc
import itertools
import json
import os
import platform
import random
import signal
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

from msgspec.structs import replace

from benchmarks.__main__ import _processor
from benchmarks.scale.programs import CLUSTER, Program, brokers, ccpipe, environment, running
from benchmarks.sonar.decode import process
from ccpipe.bus.nats.connection import Connection
from ccpipe.bus.nats.streams.jetstream import consumer_of
from ccpipe.config import Bus
from ccpipe.formats import sonar
from ccpipe.formats.lineprotocol import encode
from ccpipe.telemetry import Telemetry
from ccpipe.translate.sonar.sonar_to_cc import SonarToCc

NODES = 1000
JOBS = 10
PROCESSES = 30
"""Of each job."""
HWTHREADS = 64
SAMPLES = 5
FIRST = 2
"""Samples of each node that make its series known, the second one those of gains."""
START = int(time.time()) - 60 * SAMPLES
SUBJECT = f"{CLUSTER}.sonar.sample"
PEERS = {
    "sonalyze": "sonalyze: check of a message, without its file",
    "telegraf_json": "Telegraf: parser `json`, a metric for each process",
    "telegraf_json_v2": "Telegraf: parser `json_v2`, a metric for each process",
}


def samples(number: int) -> Iterator[bytes]:
    """Yield a sample of each node, as Sonar writes it."""
    rng = random.Random(1)
    jobs = [
        sonar.SampleJob(1000 + job, f"user{job}", 0, tuple(process(rng) for _ in range(PROCESSES)))
        for job in range(JOBS)
    ]
    first = jobs[0].processes
    jobs[0] = replace(jobs[0], processes=(*first[number:], *(process(rng) for _ in range(number))))
    grown = tuple(
        replace(job, processes=tuple(
            replace(p, cpu_time=p.cpu_time + 60 * number, data_read=p.data_read + 7 * number)
            for p in job.processes
        ))
        for job in jobs
    )  # fmt: skip
    system = sonar.SampleSystem(
        cpus=tuple(10**5 + 40 * number for _ in range(HWTHREADS)), used_memory=77468396, load1=1.5,
        boot="2025-02-01T00:00:00+00:00", existing_entities=1000,
    )  # fmt: skip
    at = sonar.timestamp.write((START + 60 * number) * 10**9)
    attributes = sonar.SampleAttributes(at, CLUSTER, "NODE", system, grown)
    meta = sonar.MetadataObject("sonar", "0.19.0")
    envelope = sonar.SampleEnvelope(meta, sonar.SampleData(attributes))
    whole = sonar.encode(envelope, profile="sonar")
    for node in range(NODES):
        yield whole.replace(b'"NODE"', b'"n%d"' % node)


def by_step() -> dict[str, float]:
    """Return the microseconds of a sample in each step, without a broker."""
    rounds = []
    translator = SonarToCc(envelopes=False)
    for number in range(SAMPLES):
        spent = dict.fromkeys(("decode", "translate", "encode"), 0.0)
        for payload in samples(number):
            times = [time.process_time()]
            decoded = sonar.decode(payload)
            times.append(time.process_time())
            lines = translator.feed(decoded)
            times.append(time.process_time())
            encode(lines)
            del decoded, lines
            times.append(time.process_time())
            for step, (begin, end) in zip(spent, itertools.pairwise(times), strict=True):
                spent[step] += 1e6 * (end - begin) / NODES
        rounds.append(spent)
    return min(rounds[FIRST:], key=lambda spent: sum(spent.values()))


async def through_bridge() -> float:
    """Return the microseconds of a sample in the process of the shipped recipe."""
    with tempfile.TemporaryDirectory(prefix="ccpipe-sonar-") as name:
        directory = Path(name)
        recipe = directory / "sonar-to-cc.toml"
        recipe.write_text(_shipped().replace('"/var/lib/ccpipe/', f'"{directory}/'))
        async with brokers(1, directory) as (_, urls), _connected(urls) as bus:
            command = ccpipe("bridge", str(recipe))
            async with running("bridge", command, directory, **environment(urls)) as bridge:
                spent = [await _publish(bus, bridge, number) for number in range(SAMPLES)]
                return 1e6 * min(spent[FIRST:]) / NODES


def _shipped() -> str:
    return Path("bridges/sonar-to-cc.toml").read_text(encoding="utf-8")


@contextlib.asynccontextmanager
async def _connected(urls: list[str]) -> AsyncIterator[Connection]:
    async with Connection(Bus(servers=urls), name="benchmark", telemetry=Telemetry()) as bus:
        yield bus


async def _publish(bus: Connection, bridge: Program, number: int) -> float:
    """Publish a sample of each node; return the CPU-seconds until the bridge has acknowledged all.

    It is paused meanwhile, so that it shares no processor with the publisher.
    """
    jetstream = bus.jetstream()
    while await consumer_of(jetstream, f"ccpipe-{CLUSTER}", "sonar-to-cc") is None:
        bridge.require_running()
        await asyncio.sleep(0.1)
    bridge.process.send_signal(signal.SIGSTOP)
    for payload in samples(number):
        await jetstream.publish(SUBJECT, payload)
    before = bridge.cpu()
    bridge.process.send_signal(signal.SIGCONT)
    while True:
        found = await consumer_of(jetstream, f"ccpipe-{CLUSTER}", "sonar-to-cc")
        assert found is not None
        if not found.num_pending and not found.num_ack_pending:
            return bridge.cpu() - before
        bridge.require_running()
        await asyncio.sleep(0.1)


def of_peer(program: Path) -> dict[str, float]:
    """Return the microseconds of a sample in each peer, on one processor."""
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        file.writelines(samples(1))
        file.flush()
        environ = {**os.environ, "GOMAXPROCS": "1"}
        printed = subprocess.run(  # noqa: S603 - our own
            [program, file.name], check=True, capture_output=True, env=environ
        )
    return dict(json.loads(printed.stdout))


def markdown(steps: dict[str, float], bridge: float, peers: dict[str, float]) -> str:
    """Write the results as a page: CPU time, and the ratio to the bridge."""
    size = len(next(samples(1)))
    total = sum(steps.values())
    rows = [
        (
            "**ccpipe, the recipe `sonar-to-cc` as a process, from the broker to the broker**",
            bridge,
        ),
        (
            f"ccpipe without the broker: {', '.join(f'{s} {us:.0f}' for s, us in steps.items())}",
            total,
        ),
        *((PEERS[name], peers[name]) for name in peers),
    ]
    return "\n".join([
        "# Sonar's samples",
        "",
        (f"{NODES} nodes of {HWTHREADS} hardware threads, {JOBS * PROCESSES} processes in {JOBS} "
        f"jobs, {size / 1000:.0f} kB a sample; {platform.machine()}, {_processor()}; Python "
        f"{platform.python_version()}; load average {os.getloadavg()[0]:.0f}. CPU time, written by "
        "`python -m benchmarks.sonar.ingestion`."),
        "",
        "| what | µs a sample | compared with the bridge | compared with ccpipe's steps |",
        "| --- | ---: | ---: | ---: |",
        *(f"| {what} | {us:.0f} | {us / bridge:.2f} | {us / total:.2f} |" for what, us in rows),
        "",
    ])  # fmt: skip


def main() -> None:
    """Measure, and write the page."""
    parser = argparse.ArgumentParser(prog="benchmarks.sonar.ingestion", description=__doc__)
    parser.add_argument("--peer", type=Path, help="the program of benchmarks/peers/sonar")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/sonar/results.md"))
    options = parser.parse_args()
    gc.freeze()
    steps = by_step()
    bridge = asyncio.run(through_bridge())
    peers = of_peer(options.peer) if options.peer else {}
    page = markdown(steps, bridge, peers)
    options.out.write_text(page, encoding="utf-8")
    print(page)


if __name__ == "__main__":
    main()
