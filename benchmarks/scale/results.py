"""Results of the benchmark of large clusters: ``benchmarks/scale.json``."""

import math
from collections.abc import Sequence
from typing import Literal

import msgspec

Role = Literal["publisher", "broker", "bridge", "store"]
ROLES: tuple[Role, ...] = ("publisher", "broker", "bridge", "store")


class Latency(msgspec.Struct):
    """Seconds from a message's publication until the broker had the bridge's acknowledgement.

    The bridge sends it after the store's write returned, so that it is at least the time until the
    message was stored. A message is published when it could be sent, even if it then waits for
    those before it.
    """

    messages: int
    p50: float
    p99: float
    max: float


class Outage(msgspec.Struct):
    """A store that was down while messages arrived."""

    minutes: float
    """Minutes of the cluster's time whose messages arrived while the store was down."""
    backlog: int
    """Lines in the stream when the store was up again."""
    live: int
    """Lines that arrived while the backlog was drained, at the cluster's own pace."""
    drain_seconds: float
    """Until nothing waited."""


class Stages(msgspec.Struct):
    """Where a message waits, at the median and the 99th percentile of each stage."""

    broker: tuple[float, float]
    """Seconds from its publication until the stream has it."""
    bridge: tuple[float, float]
    """Seconds from then until the broker had its acknowledgement, less its write."""
    write: float
    """Seconds of a write of the sink, on average."""
    writing: float
    """Share of the time in which messages waited that the sink was writing."""
    machine: tuple[float, float]
    """Megabytes that BLAKE2b hashes in a CPU-second, before and after the run, and the share of a
    processor's time that it got for that."""


class Loader(msgspec.Struct):
    """Rows that a store took, of series that it knows."""

    store: str
    name: str
    """The store's own loader; empty for the sink."""
    rows: int
    cpu: float
    """CPU-seconds of the store."""
    seconds: float

    @property
    def rate(self) -> float:
        """Rows per CPU-second of the store."""
        return self.rows / self.cpu


class Run(msgspec.Struct, kw_only=True):
    """One flow of messages from the publisher to the store."""

    series: str
    """Which series of measurements it belongs to."""
    nodes: int
    metrics: int = 0
    """Series of each node."""
    jobs: int = 0
    """Jobs that ran at the end; 0 if no job was of interest."""
    replicas: int = 1
    partitions: int = 1
    by_node: bool = False
    """Whether each node has a subject of its own, as partitions need it, instead of the default."""
    brokers: int = 1
    store: str = "null"
    messages: int = 0
    lines: int = 0
    """Lines that were published, or Sonar's samples."""
    compression: str = "none"
    """Of the stream."""
    bytes: int = 0
    """Size of one copy of the stream, uncompressed."""
    disk: int = 0
    """What the broker's directory takes on disk at the end, of all copies."""
    seconds: float = 0.0
    """From the first message until the last one was acknowledged by the bridge."""
    cpu: dict[Role, float] = {}
    """CPU-seconds, user and system, of all processes of a role, without their start."""
    memory: dict[Role, int] = {}
    """Peak of resident bytes, of all processes of a role together."""
    stored: int | None = None
    """Lines that the store returns."""
    expected: int | None = None
    """Lines that it should return."""
    latency: Latency | None = None
    stages: Stages | None = None
    outage: Outage | None = None

    def cpu_per_line(self, role: Role) -> float:
        """Return CPU-seconds for a line."""
        return self.cpu.get(role, 0.0) / self.lines


class Results(msgspec.Struct, kw_only=True):
    """All runs, and where they were made."""

    machine: str
    versions: dict[str, str]
    load: float
    """Load average when it began: other programs that were running make waiting times longer."""
    seconds: float = 0.0
    runs: list[Run] = []
    loaders: list[Loader] = []

    def of(self, series: str) -> list[Run]:
        """Return the runs of a series of measurements, in their order."""
        return [run for run in self.runs if run.series == series]


def exponent(points: Sequence[tuple[float, float]]) -> float:
    """Return e of the power law y = a * x**e that fits points best, by least squares of logarithms.

    If y is the cost of a line, 0 means that it does not depend on x.
    """
    logs = [(math.log(x), math.log(y)) for x, y in points]
    mean_x = sum(x for x, _ in logs) / len(logs)
    mean_y = sum(y for _, y in logs) / len(logs)
    spread = sum((x - mean_x) ** 2 for x, _ in logs)
    return sum((x - mean_x) * (y - mean_y) for x, y in logs) / spread


def quantile(ordered: Sequence[float], share: float) -> float:
    """Return the smallest value that so large a share of all does not exceed."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]
