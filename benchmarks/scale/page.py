"""The measured part of docs/operations/scale.md, made from ``benchmarks/scale.json`` alone."""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from benchmarks.scale.arithmetic import arithmetic
from benchmarks.scale.results import ROLES, Loader, Results, Role, Run, exponent

BEGIN = "<!-- measured: `make scale` writes this part from benchmarks/scale.json -->"
END = "<!-- end of measurements -->"
TARGET_RATE = 100_000
"""Lines per second of 10 000 nodes with 100 series each, every 10 s."""
TARGET_P99 = 3.0


def write_page(path: Path, results: Results) -> None:
    """Replace the measured part of a page."""
    path.write_text(replaced(path.read_text(encoding="utf-8"), results), encoding="utf-8")


def replaced(page: str, results: Results) -> str:
    """Return a page with its measured part replaced."""
    pattern = re.compile(f"{re.escape(BEGIN)}.*{re.escape(END)}", re.DOTALL)
    return pattern.sub(lambda _: f"{BEGIN}\n\n{measured(results)}\n{END}", page)


def read_results(path: Path) -> Results:
    """Read what the benchmark wrote."""
    return msgspec.json.decode(path.read_bytes(), type=Results)


def measured(results: Results) -> str:
    """Return the measured part."""
    versions = ", ".join(f"{name} {version}" for name, version in results.versions.items())
    return "\n".join([
        (f"Measured on {results.machine}; {versions}. All programs share the machine; the load "
        f"average before the run was {results.load:.1f}."),
        "",
        "### Maximum throughput",
        "",
        ("Every node sends one message with all its series every 10 s. `ccpipe simulate` publishes "
        "those of all nodes over one connection, in fast-ingest batches; a connection for each "
        "node costs the broker more. Metrics have the default subject, which all nodes share, or "
        "a subject of each node, as partitions need it. CPU is user and system time of all "
        "processes of a kind, excluding startup."),
        "",
        *_speeds(results),
        "",
        *_exponents(results),
        "",
        *_compression(results.of("compression")),
        *_floor(results),
        "### In real time, into VictoriaMetrics",
        "",
        *_targets(results),
        "",
        *_outages(results.of("outage")),
        "",
        *_loaders(results.loaders),
        *arithmetic(results),
    ])  # fmt: skip


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]], left: int = 1) -> list[str]:
    marks = ["---"] * left + ["---:"] * (len(heads) - left)
    lines = [heads, marks, *rows]
    return [f"| {' | '.join(cells)} |" for cells in lines]


def _speeds(results: Results) -> list[str]:
    heads = ["nodes x series, bridges, copies, store", "lines/s"]
    heads += [f"{role}, ns/line" for role in ROLES] + [f"{role}, MB" for role in ROLES]
    runs = [each for name in ("nodes", "metrics", "subjects", "replicas", "copies", "store")
            for each in results.of(name)]  # fmt: skip
    rows = [
        [
            f"{_count(run.nodes)} x {run.metrics}, {_bridges(run)}, {run.brokers}, {run.store}"
            + (", a subject each" if run.by_node else ""),
            f"{_count(run.lines / run.seconds)}",
            *(_nanoseconds(run, role) for role in ROLES),
            *(_megabytes(run, role) for role in ROLES),
        ]
        for run in runs
    ]
    return _table(heads, rows)


def _bridges(run: Run) -> str:
    return f"{run.replicas}" + (f" of {run.partitions} partitions" if run.partitions > 1 else "")


def _nanoseconds(run: Run, role: Role) -> str:
    return f"{1e9 * run.cpu_per_line(role):.0f}" if role in run.cpu else ""


def _megabytes(run: Run, role: Role) -> str:
    return f"{run.memory[role] / 1e6:.0f}" if role in run.memory else ""


def _count(number: float) -> str:
    return f"{number:,.0f}".replace(",", " ")


def _exponents(results: Results) -> list[str]:
    """Describe how the cost of a line depends on the size: e of cost = a * size ** e."""
    of = {
        "the number of nodes": [(run.nodes, run) for run in results.of("nodes")],
        "the number of nodes, a backlog at full speed": [
            (run.nodes, run) for run in results.of("backlog")
        ],
        "the number of series of each node": [(run.metrics, run) for run in results.of("metrics")],
        "the number of jobs (a Sonar sample, through `sonar_to_cc`)": [
            (run.jobs, run) for run in results.of("jobs")
        ],
    }
    roles: tuple[Role, ...] = ("publisher", "broker", "bridge")
    heads = ["cost per line, as a function of", *(f"{role}: exponent" for role in roles)]
    heads += ["bridge: largest / smallest"]
    rows = []
    for name, points in of.items():
        if len(points) < 2:
            continue
        sizes = f"{_count(points[0][0])} to {_count(points[-1][0])}"
        costs = [point[1].cpu_per_line("bridge") for point in points]
        rows.append([
            f"{name}, {sizes}",
            *(
                f"{exponent([(size, run.cpu_per_line(role)) for size, run in points]):+.3f}"
                for role in roles
            ),
            f"{costs[-1] / costs[0]:.2f}",
        ])  # fmt: skip
    return [
        (
            "An exponent of 0 means that the cost per line does not depend on the size. With more "
            "series per node messages grow, and more lines share the cost of a message."
        ),
        "",
        *_table(heads, rows),
    ]


def _compression(runs: Sequence[Run]) -> list[str]:
    """Compare the disk and the CPU time of a line in a stream that is compressed or not."""
    if not runs:
        return []
    rows = [
        [
            run.compression,
            f"{run.disk / run.lines:.1f}",
            *(_nanoseconds(run, role) for role in ("publisher", "broker", "bridge")),
        ]
        for run in runs
    ]
    heads = ["disk, bytes/line", "publisher, ns/line", "broker, ns/line", "bridge, ns/line"]
    return [
        f"With `stream_compression`, {_count(runs[0].nodes)} nodes of {runs[0].metrics} series:",
        "",
        *_table(["`stream_compression`", *heads], rows),
        "",
    ]


def _floor(results: Results) -> list[str]:
    """Compare the broker's cost of a message with that of the broker's own benchmark clients."""
    if not results.of("floor"):
        return []
    floor = results.of("floor")[0]
    least = floor.cpu["broker"] / floor.messages
    rows = [["`nats bench js pub async` and `js fetch`", f"{1e6 * least:.0f}", "1.00"]]
    for run in results.of("nodes"):
        cost = run.cpu["broker"] / run.messages
        rows.append([f"{_count(run.nodes)} nodes", f"{1e6 * cost:.0f}", f"{cost / least:.2f}"])
    return [
        (
            f"CPU time of the broker for a message of {floor.metrics} lines that is stored, "
            "delivered and acknowledged, beside the same for the NATS CLI's benchmark clients: "
            "messages of that size on one subject, without a message id, up to 500 in flight."
        ),
        "",
        *_table(["client", "broker, µs/message", "times the floor"], rows),
        "",
    ]


def _targets(results: Results) -> list[str]:
    heads = ["copies", "lines/s", "p50", "p99", "maximum", "stored / published",
             "cores used", *(f"{role}, ns/line" for role in ROLES)]  # fmt: skip
    rows, ends = [], []
    for run in results.of("target"):
        if run.latency is None:
            continue
        rows.append([
            str(run.brokers),
            _count(run.lines / run.seconds),
            *(f"{each:.2f} s" for each in (run.latency.p50, run.latency.p99, run.latency.max)),
            f"{_count(run.stored or 0)} of {_count(run.expected or 0)}",
            f"{sum(run.cpu.values()) / run.seconds:.2f}",
            *(_nanoseconds(run, role) for role in ROLES),
        ])  # fmt: skip
        ends.append(_verdict(run))
    return [
        (
            "Latency is the time from when a message could be sent, behind those before it, until "
            "the broker has the bridge's acknowledgement, which is sent after the store has "
            "confirmed the write. All nodes publish simultaneously every 10 s, which is the worst "
            "case. The store knew all series of the day: VictoriaMetrics indexes a series anew for "
            "each day, in the hour before. A cluster that starts, or starts after midnight, waits "
            "longer for its first sample. Stored values are counted by querying the store for the "
            "number of values per metric."
        ),
        "",
        *_table(heads, rows),
        "",
        *ends,
        *_stages([run for run in results.of("target") if run.stages]),
    ]


def _stages(runs: Sequence[Run]) -> list[str]:
    """Show where messages waited."""
    rows = [
        [
            str(run.brokers),
            *(f"{each:.2f} s" for stage in (of.broker, of.bridge) for each in stage),
            f"{of.write:.2f} s",
            f"{100 * of.writing:.0f} %",
            f"{of.machine[0]:.0f}",
            f"{100 * of.machine[1]:.0f} %",
        ]
        for run in runs
        if (of := run.stages)
    ]
    if not rows:
        return []
    return [
        "",
        (
            "Where a message waits: until the stream has it; then in the stream and in the bridge, "
            "that is until its acknowledgement, less an average write. `writing` is the share of "
            "the time with such messages in which the bridge waited for the store: near 100 %, "
            "the store is what limits, and it is never idle between two writes. The speed of the "
            "machine is what BLAKE2b hashes in a second of CPU time, and the share of a processor "
            "that it got meanwhile: other programs got the rest."
        ),
        "",
        *_table(
            ["copies", "broker, p50", "p99", "bridge, p50", "p99", "a write", "writing",
             "machine, MB/s", "share"], rows,
        ),
    ]  # fmt: skip


def _loaders(loaders: Sequence[Loader]) -> list[str]:
    """Compare what the stores take from their sinks with what they take from their own loaders."""
    rows = []
    for store in dict.fromkeys(each.store for each in loaders):
        of_store = [each for each in loaders if each.store == store]
        most = max(each.rate for each in of_store)
        rows += [
            [store, each.name or "the sink", _count(each.rate), f"{each.rate / most:.2f}"]
            for each in of_store
        ]
    if not rows:
        return []
    return [
        "### What a store can take",
        "",
        (
            "Rows of known series per CPU-second of the store, its merges included: as the sink "
            "writes them, and through the store's own loaders."
        ),
        "",
        *_table(["store", "through", "rows/CPU-s", "of the fastest"], rows, left=2),
        "",
    ]


def _verdict(run: Run) -> str:
    assert run.latency is not None
    rate = run.nodes * run.metrics / 10
    reached = rate >= TARGET_RATE and run.stored == run.expected and run.latency.p99 < TARGET_P99
    copies = f"{run.brokers} cop{'y' if run.brokers == 1 else 'ies'}"
    return (
        f"- {_count(run.nodes)} nodes, {_count(rate)} lines/s, {copies}: "
        f"{'reached' if reached else 'NOT reached'}: nothing lost and p99 under {TARGET_P99:g} s."
    )


def _outages(runs: Sequence[Run]) -> list[str]:
    found = []
    for run in runs:
        if (outage := run.outage) is None:
            continue
        rate = outage.backlog / outage.drain_seconds
        found.append(
            f"While the store was down, the stream stored what {_count(run.nodes)} nodes publish "
            f"in {outage.minutes:.3g} minutes ({_count(outage.backlog)} lines, "
            f"{run.bytes / 1e9:.1f} GB; "
            f"published as fast as possible, in compressed time). When the store was back, the "
            f"backlog was drained in {outage.drain_seconds:.0f} s, while "
            f"{_count(run.nodes * run.metrics / 10)} new lines arrived every second: "
            f"{_count(rate)} lines/s. The store then had {_count(run.stored or 0)} of "
            f"{_count(run.expected or 0)} lines."
        )
    return found


def main() -> None:
    """Rewrite docs/operations/scale.md from the existing results."""
    write_page(Path("docs/operations/scale.md"), read_results(Path("benchmarks/scale.json")))


if __name__ == "__main__":
    main()
