"""``python -m benchmarks``: measure, and write ``results.md`` and ``results.json``."""

import argparse
import asyncio
import os
import platform
import time
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path

import msgspec

from benchmarks import start
from benchmarks.bridges import bus, durability, stores
from benchmarks.codec import lines, memory, rules
from benchmarks.node import publisher
from benchmarks.timing import Result
from ccpipe.formats.kernel import kernels

LIBRARY = "line_protocol_parser"
PEERS = {
    "telegraf": "Telegraf",
    "collector": "cc-metric-collector",
    "metric_store": "cc-metric-store",
    "nats": "the command line client of NATS",
}
"""Programs of others by their option."""
PUBLISHERS = """\
All run at the same time and publish without a stream. ccpipe's rate is limited by system calls, and
Python's objects for each metric. Most of its memory is Python with asyncio and TLS, and nats-py."""
DURABILITY = """\
A durable message has an id and waits until the one before it on its subject is stored, which keeps
their order; the rate is limited by one wakeup for each acknowledgement."""
START = "The time to the first line is limited by importing asyncio, TLS and nats-py."


class Results(msgspec.Struct):
    """Everything that one run measured."""

    machine: str
    python: str
    kernel: str
    libraries: dict[str, str]
    decoding: dict[str, list[Result]]
    encoding: list[Result]
    rules: dict[str, list[Result]]
    bus: list[Result]
    bridges: list[stores.Bridge]
    durability: list[durability.Durability]
    memory: list[memory.Memory]
    start: dict[str, float]
    """CPU seconds of commands."""
    publishers: list[publisher.Cost]
    one_line_microseconds: float
    seconds: float = 0.0
    apart: list[str] = []
    """Stores whose bridges were measured in a later run of their own."""


def measure(peers: Mapping[str, Path | None], decoders: Sequence[Path], *, quick: bool) -> Results:
    """Run all benchmarks, one after another, and the available peers."""
    begin = time.monotonic()
    decoding = lines.decoding(decoders)
    [ours] = [result for result in decoding["1 lines"] if result.what == "ccpipe, decode()"]
    results = Results(
        machine=f"{platform.machine()}, {os.cpu_count()} cores, {_processor()}",
        python=platform.python_version(),
        kernel=kernels()["lineprotocol"],
        libraries={name: version(name) for name in ("line-protocol-parser", "pyarrow", "nats-py")},
        decoding=decoding,
        encoding=lines.encoding(),
        rules=rules.rules(),
        bus=bus.ways(peers["metric_store"], quick=quick),
        bridges=stores.bridges(quick=quick, program=peers["telegraf"]),
        durability=durability.measure(200, 1) if quick else durability.measure(4000, 7),
        memory=[
            memory.growth(100_000, 1_000_000) if quick else memory.growth(1_000_000, 10_000_000),
            memory.growth(200_000, 20_000) if quick else memory.growth(1_000_000, 100_000),
        ],
        start=asyncio.run(start.start(3 if quick else 9, peers["nats"])),
        publishers=publisher.costs(peers["collector"], 10 if quick else 40),
        one_line_microseconds=1e6 / ours.lines_per_second,
    )
    results.seconds = time.monotonic() - begin
    return results


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return "unknown processor"


def markdown(results: Results) -> str:
    """Write the results for people: ratios first."""
    return "\n".join(
        [
            "# Benchmarks",
            "",
            f"{results.machine}; Python {results.python}; kernel: {results.kernel}; "
            + ", ".join(f"{name} {number}" for name, number in results.libraries.items())
            + f". Taken in {results.seconds:.0f} s; all rates are lines per second of CPU, the best"
            " round of several; ratios are taken within this one run, round by round in turn.",
            "",
            *stores.markdown(results.bridges),
            *(
                [f"Measured in a later run of their own: {', '.join(results.apart)}."]
                if results.apart
                else []
            ),
            "",
            *_decoding(results),
            "",
            "## Encoding: 50 000 lines",
            "",
            *_table(results.encoding, results.encoding[0]),
            "",
            "## Rules: payloads of 8 lines",
            "",
            *_rules(results),
            "",
            "## Core NATS to columns, 500 lines in a message, without a bridge",
            "",
            *_table(results.bus, results.bus[0]),
            "",
            "## Cost of durability: 500 lines a message, JetStream compared with core NATS",
            "",
            *durability.markdown(results.durability),
            "",
            DURABILITY,
            "",
            "## A publisher on a node of 300 processes: processor time of a sample, and memory",
            "",
            *publisher.markdown(results.publishers),
            "",
            PUBLISHERS,
            "",
            "## Start: processor time of whole commands, the median",
            "",
            *start.markdown(results.start),
            "",
            START,
            "",
            "## Memory of the series table",
            "",
            "| new series | cap | held at most | growth | bytes for each held |",
            "|---:|---:|---:|---:|---:|",
            *(
                f"| {m.series:,} | {m.cap:,} | {m.maximum:,} | {m.bytes / 1e6:.0f} MB |"
                f" {m.bytes / m.maximum:.0f} |"
                for m in results.memory
            ),
            "",
        ]
    )


def _decoding(results: Results) -> list[str]:
    names = [result.what for result in next(iter(results.decoding.values()))]
    head = " | ".join(names)
    rows = [
        "## Decoding: how many times as fast as line_protocol_parser",
        "",
        f"| payload | {head} |",
        "|---|" + "---:|" * len(names),
    ]
    for size, measured in results.decoding.items():
        base = next(r.lines_per_second for r in measured if r.what == LIBRARY)
        cells = [
            f"{r.lines_per_second / base:.1f}x ({r.lines_per_second / 1e6:.2f} M/s)"
            for r in measured
            if r.what in names
        ]
        rows.append(f"| {size} | {' | '.join(cells)} |")
    rows += ["", f"A payload of one line takes {results.one_line_microseconds:.2f} µs."]
    rows += [
        f"{r.what}: {r.lines_per_second / 1e6:.2f} M/s ({r.note})."
        for measured in results.decoding.values()
        for r in measured
        if r.what not in names
    ]
    return rows


def _rules(results: Results) -> list[str]:
    columns = [result.what for result in next(iter(results.rules.values()))]
    return [
        f"| rule | {' | '.join(columns)} |",
        "|---|" + "---:|" * len(columns),
        *(
            f"| {name} | {' | '.join(f'{8e6 / r.lines_per_second:.0f} µs' for r in measured)} |"
            for name, measured in results.rules.items()
        ),
    ]


def _table(results: list[Result], base: Result) -> list[str]:
    return [
        "| what | ratio to the first | lines per CPU-second |",
        "|---|---:|---:|",
        *(
            f"| {r.what} | {r.lines_per_second / base.lines_per_second:.1f}x |"
            f" {r.lines_per_second / 1e6:.2f} M |"
            for r in results
        ),
    ]


def _program(path: str) -> Path:
    if not os.access(path, os.X_OK):
        raise argparse.ArgumentTypeError(f"{path} is not a program")
    return Path(path)


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(prog="benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a smaller run, to see that it works")
    parser.add_argument(
        "--out", type=Path, default=Path("benchmarks"), help="directory for results"
    )
    parser.add_argument(
        "--bridges", nargs="+", metavar="STORE", help="measure these, and keep the other results"
    )
    for name, what in PEERS.items():
        flag = f"--{name.replace('_', '-')}"
        parser.add_argument(flag, type=_program, metavar="PROGRAM", help=f"{what}, measured too")
    parser.add_argument(
        "--decoder",
        type=_program,
        metavar="PROGRAM",
        action="append",
        default=[],
        help="a program built from benchmarks/peers, measured too; may be repeated",
    )
    options = parser.parse_args()
    peers = {name: getattr(options, name) for name in PEERS}
    path = options.out / "results.json"
    if options.bridges:
        results = msgspec.json.decode(path.read_bytes(), type=Results)
        found = stores.bridges(quick=options.quick, program=peers["telegraf"], only=options.bridges)
        places = {one.store: place for place, one in enumerate(results.bridges)}
        others = [one for one in results.bridges if one.store not in options.bridges]
        last = len(results.bridges)
        results.bridges = sorted(others + found, key=lambda one: places.get(one.store, last))
        results.apart = sorted({*results.apart, *options.bridges})
    else:
        results = measure(peers, options.decoder, quick=options.quick)
    text = markdown(results)
    print(text)
    (options.out / "results.md").write_text(text)
    encoded = msgspec.json.format(msgspec.json.encode(results), indent=2)
    path.write_bytes(encoded + b"\n")


if __name__ == "__main__":
    main()
