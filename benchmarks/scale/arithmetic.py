"""The measured costs carried to sizes that do not fit on the machine."""

import math
from typing import NamedTuple

from benchmarks.scale.results import Results

INTERVAL = 10.0
"""Seconds between the samples of a node."""
SERIES = 100
"""Of each node."""
BUSY = 0.7
"""Share of a core that a process may use for long, so that it can catch up."""
STORE_CORES = 16
"""Of a machine for a store."""
DEFAULT_STREAM = 2**30
"""``bus.stream_max_bytes`` where it is not set."""


class Costs(NamedTuple):
    """Resources for one line, message or series."""

    broker: float
    """CPU-seconds of a message, one copy."""
    brokers: float
    """CPU-seconds of a message in three copies, of the three servers together."""
    bridge: float
    """CPU-seconds of a line, the store's protocol included."""
    store: float
    """CPU-seconds of a line."""
    disk: float
    """Bytes of a line in the stream."""
    bridge_series: float
    """Bytes of a series in the bridge."""
    store_series: float
    """Bytes of a series in the store, at most: all its memory by the number of series."""

    @classmethod
    def of(cls, results: Results) -> "Costs":
        """Take them from the runs."""
        nodes, stored = results.of("nodes"), results.of("store")[0]
        copied, middle = results.of("copies")[0], nodes[1]
        first, last = nodes[0], nodes[-1]
        more = last.nodes * last.metrics - first.nodes * first.metrics
        return cls(
            broker=middle.cpu["broker"] / middle.messages,
            brokers=copied.cpu["broker"] / copied.messages,
            bridge=stored.cpu_per_line("bridge"),
            store=stored.cpu_per_line("store"),
            disk=middle.bytes / middle.lines,
            bridge_series=(last.memory["bridge"] - first.memory["bridge"]) / more,
            store_series=stored.memory["store"] / (stored.nodes * stored.metrics),
        )


class Size(NamedTuple):
    """One system."""

    name: str
    nodes: int
    streams: int
    """Clusters, each of which has a stream of its own."""


SIZES = (
    Size("1 000 nodes", 1000, 1),
    Size("10 000 nodes", 10_000, 1),
    Size("100 000 nodes", 100_000, 1),
    Size("100 clusters of 2 000 nodes", 200_000, 100),
)


class Need(NamedTuple):
    """Resources for a system."""

    lines: float
    messages: float
    series: int
    bridge: float
    """Cores."""
    broker: float
    brokers: float
    store: float
    stream: float
    """Share of a core that one stream takes, which one broker serves."""
    disk: float
    """Bytes each second into all streams, one copy."""
    bridge_bytes: float
    store_bytes: float

    @classmethod
    def of(cls, size: Size, costs: Costs) -> "Need":
        """Calculate it."""
        messages, series = size.nodes / INTERVAL, size.nodes * SERIES
        lines = series / INTERVAL
        return cls(
            lines=lines,
            messages=messages,
            series=series,
            bridge=lines * costs.bridge,
            broker=messages * costs.broker,
            brokers=messages * costs.brokers,
            store=lines * costs.store,
            stream=messages * costs.broker / size.streams,
            disk=lines * costs.disk,
            bridge_bytes=series * costs.bridge_series,
            store_bytes=series * costs.store_series,
        )

    def limits(self) -> dict[str, float]:
        """Return by how much each limit is used, where one of everything is run."""
        return {
            "one bridge's core": self.bridge / BUSY,
            "one stream's core": self.stream / BUSY,
            f"a store of {STORE_CORES} cores": self.store / (STORE_CORES * BUSY),
        }

    def streams(self, size: Size) -> int:
        """Return the streams that are needed."""
        return max(size.streams, math.ceil(self.broker / BUSY))

    def replicas(self, size: Size) -> int:
        """Return the bridges that are needed for each stream."""
        return math.ceil(self.bridge / self.streams(size) / BUSY)

    def partitions(self, size: Size) -> int:
        """Return partitions of each stream, two for each bridge: one more then changes little."""
        replicas = self.replicas(size)
        return 1 if replicas == 1 else 2 ** math.ceil(math.log2(2 * replicas))


def arithmetic(results: Results) -> list[str]:
    """Return the section of larger systems; nothing where a run that it needs is missing."""
    if not all(results.of(name) for name in ("nodes", "copies", "store")):
        return []
    costs = Costs.of(results)
    needs = [(size, Need.of(size, costs)) for size in SIZES]
    return [
        "## Extrapolation to larger systems",
        "",
        (
            f"One node sends one message of {SERIES} lines every {INTERVAL:g} s. As measured, "
            f"a message costs the broker {1e6 * costs.broker:.0f} µs of CPU "
            f"({1e6 * costs.brokers:.0f} µs with three copies, for three servers together) and "
            f"{costs.disk:.0f} bytes of disk per line; a line costs the bridge "
            f"{1e9 * costs.bridge:.0f} ns and the store {1e9 * costs.store:.0f} ns; a series takes "
            f"{costs.bridge_series:.0f} bytes in the bridge and {costs.store_series:.0f} bytes in "
            "the store. The table scales these costs linearly. A process may use up to "
            f"{100 * BUSY:.0f} % of a core on average, which leaves headroom to catch up."
        ),
        "",
        *_needs(needs),
        "",
        *_advice(results, needs, costs),
    ]


def _needs(needs: list[tuple[Size, Need]]) -> list[str]:
    rows = {
        "lines/s": [_count(need.lines) for _, need in needs],
        "messages/s": [_count(need.messages) for _, need in needs],
        "series": [_count(need.series) for _, need in needs],
        "cores of the broker, one copy": [f"{need.broker:.2f}" for _, need in needs],
        "cores of the brokers, three copies": [f"{need.brokers:.2f}" for _, need in needs],
        "cores of the bridges": [f"{need.bridge:.2f}" for _, need in needs],
        "cores of the store": [f"{need.store:.1f}" for _, need in needs],
        "memory of the bridges for series": [_bytes(need.bridge_bytes) for _, need in needs],
        "memory of the store": [_bytes(need.store_bytes) for _, need in needs],
        "stream for 10 minutes": [_bytes(600 * need.disk) for _, need in needs],
        "stream for 8 hours": [_bytes(8 * 3600 * need.disk) for _, need in needs],
        "the default stream lasts": [
            f"{DEFAULT_STREAM * size.streams / need.disk / 60:.1f} min" for size, need in needs
        ],
        "first limit reached, utilization": [_first(need) for _, need in needs],
        "streams": [str(need.streams(size)) for size, need in needs],
        "bridges per stream": [str(need.replicas(size)) for size, need in needs],
        "`stream_partitions`": [str(need.partitions(size)) for size, need in needs],
    }
    heads = ["", *(size.name for size, _ in needs)]
    lines = [heads, ["---", *(["---:"] * len(needs))], *([k, *v] for k, v in rows.items())]
    return [f"| {' | '.join(cells)} |" for cells in lines]


def _first(need: Need) -> str:
    name, used = max(need.limits().items(), key=lambda item: item[1])
    return f"{name}: {100 * used:.0f} %"


def _advice(results: Results, needs: list[tuple[Size, Need]], costs: Costs) -> list[str]:
    size, need = needs[2]
    bridges = need.streams(size) * need.replicas(size)
    nodes = BUSY / costs.bridge / SERIES * INTERVAL
    stream = BUSY / costs.broker
    return [
        "Limits, and what to do when you reach them:",
        "",
        (
            f"- **Disk of the stream**: the default of 1 GiB is for "
            f"{DEFAULT_STREAM / (needs[1][1].disk * 60):.0f} minutes of {needs[1][0].name}. Set "
            "`stream_max_bytes` for the longest expected outage of a store, here "
            f"{_bytes(3600 * needs[1][1].disk)} per hour."
        ),
        (
            f"- **CPU of a bridge**: one is enough for {_count(nodes)} nodes. Beyond that, set "
            f"`stream_partitions` and start more bridges: {bridges} for {size.name}."
        ),
        (
            "- **Memory of a bridge**: series may use an eighth of its memory limit. "
            f"{_count(need.series)} series in one process need {_bytes(8 * need.bridge_bytes)}; "
            f"split over the bridges ({bridges}), each needs "
            f"{_bytes(8 * need.bridge_bytes / bridges)}."
        ),
        (
            "- **CPU of the store**: use a VictoriaMetrics cluster (set `url` to its vminsert), or "
            "a separate store for each cluster's recipe."
        ),
        (
            f"- **Write rate of a stream**, limited by its leader: {_count(stream)} messages/s "
            f"of {SERIES} lines. Split the nodes over several values of `cluster`, each with its "
            "own stream and bridges, or store them on a leaf node per rack or site in its own "
            "`domain`, and read them there with bridges that use that `domain`."
        ),
        (
            f"- **Message rate**: {_messages(results)}. Few large messages cost less than many "
            "small ones."
        ),
        (
            "- **Network between sites**: use `stream_sources` for data that the center needs in "
            "full, and bridges with the translators `select` or `aggregate` at the site for the "
            "rest."
        ),
    ]


def _messages(results: Results) -> str:
    """Describe the cost of messages of several sizes for the broker and the bridge."""
    return "; ".join(
        f"a message of {run.metrics} line{'s' if run.metrics > 1 else ''} costs the broker "
        f"{1e6 * run.cpu['broker'] / run.messages:.0f} µs and the bridge "
        f"{1e6 * run.cpu['bridge'] / run.messages:.0f} µs"
        for run in results.of("metrics")
    )


def _count(number: float) -> str:
    return f"{number:,.0f}".replace(",", " ")


def _bytes(number: float) -> str:
    for unit, size in (("TB", 1e12), ("GB", 1e9)):
        if number >= size:
            return f"{number / size:.1f} {unit}"
    return f"{number / 1e6:.0f} MB"
