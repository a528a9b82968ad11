"""``ccpipe simulate``: a simulated cluster on the bus."""

import asyncio
import itertools
import sys
import time
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from cyclopts import Parameter

from ccpipe.bus.nats.connection import Connection
from ccpipe.bus.subjects import Subjects
from ccpipe.cli.console.options import DURATION, Since, SiteOptions, point_in_time, seconds
from ccpipe.errors import CreateError, UsageError
from ccpipe.pipeline import wait_for_event
from ccpipe.process.signals import stop_signals
from ccpipe.simulate import Payload, SimulatedCluster, SimulationOptions
from ccpipe.simulate.publisher import PayloadPublisher
from ccpipe.simulate.series import NodeParts
from ccpipe.telemetry import Telemetry
from ccpipe.terminal import Progress, note, plural

SECOND = 10**9


async def simulate(
    *,
    nodes: int = 100,
    metrics: int = 200,
    hwthreads: int = 64,
    gpus: int = 4,
    interval: Annotated[str, DURATION] = "10s",
    duration: Annotated[str | None, DURATION] = None,
    since: Since = None,
    speed: str = "1",
    seed: int = 1,
    sonar: Annotated[str | None, DURATION] = None,
    failures: float = 0.01,
    late: float = 0.0,
    broken: float = 0.0,
    repeated: float = 0.0,
    report: Path | None = None,
    dry_run: bool = False,
    output: Annotated[Literal["line", "sonar"], Parameter(alias="-o")] = "line",
    where: SiteOptions = SiteOptions(),
) -> None:
    """Publish the data of a simulated cluster of any size.

    The metrics are the collectors', those of jobs' cgroups among them, with values of
    compute-bound, memory-bound and other jobs. Jobs end in every way, some run again,
    nodes fail and are drained, and data can be late, malformed or duplicated. Jobs
    still running at the end, on Ctrl-C or SIGTERM are cancelled. The same seed and
    times give the same data. At a speed other than 1, timestamps end now.

    Examples:
      ccpipe simulate --nodes 1000 --gpus 4 --duration 10m
      ccpipe simulate --nodes 200 --duration 24h --speed max --sonar 60s
      ccpipe simulate --nodes 10 --duration 1m --dry-run --late 0.1 > made.line

    Parameters
    ----------
    nodes
        Number of nodes.
    metrics
        Series per node; the default has all that dashboards show.
    hwthreads
        Hardware threads per node.
    gpus
        GPUs of each node of the partition gpu, a third of the nodes; 0 for none.
    interval
        Time between samples.
    duration
        Simulated time to publish, such as 10m; default: until interrupted.
    since
        Timestamp of the first sample, such as 2026-11-01T00:00:00Z; default: see above.
    speed
        Speed relative to real time, such as 60; max for as fast as possible.
    seed
        Random seed; each gives a different cluster.
    sonar
        Time between Sonar samples, a multiple of the interval; default: no Sonar samples.
    failures
        Failures per node and day; three times as many nodes are drained.
    late
        Fraction of messages that arrive late.
    broken
        Fraction of messages with an invalid line.
    repeated
        Fraction of messages that are sent twice.
    report
        File for a JSON summary that includes when each message was published.
    dry_run
        Print the payloads on stdout; connect to nothing.
    output
        What a dry run prints: lines, or Sonar envelopes.
    """
    site = where.site()
    pace = _pace(speed)
    wanted = seconds(duration, "--duration")
    shape = SimulationOptions(
        nodes=_positive(nodes, "--nodes"),
        metrics=_positive(metrics, "--metrics"),
        parts=NodeParts(hwthread=_positive(hwthreads, "--hwthreads"), accelerator=gpus),
        interval=_nanoseconds(interval, "--interval"),
        sonar_interval=_nanoseconds(sonar, "--sonar") if sonar else 0,
        failures=failures,
        late=late,
        broken=broken,
        repeated=repeated,
    )
    for option, fraction in (("--late", late), ("--broken", broken), ("--repeated", repeated)):
        if not 0 <= fraction <= 1:
            raise UsageError(f"{option}: expected a fraction from 0 to 1, got {fraction:g}")
    if shape.sonar_interval % shape.interval:
        raise UsageError("--sonar: expected a multiple of --interval")
    if report and dry_run:
        raise UsageError("--report: a dry run publishes nothing")
    if pace != 1 and wanted is None:
        raise UsageError("--speed needs --duration")
    ago = round(wanted * SECOND) if wanted and pace != 1 else 0
    first = _whole_seconds(since) if since else time.time_ns() - ago
    cluster = SimulatedCluster(shape, Subjects.of(site), start=first, seed=seed)
    samples = None if wanted is None else max(1, round(wanted * SECOND / shape.interval))
    clock = SampleClock(shape.interval, pace)
    if dry_run:
        for _ in _samples(samples):
            _print(cluster.sample(), output)
        _print(cluster.end(), output)
    else:
        await _publish(cluster, samples, clock, where, seed, report)


class SampleClock:
    """Computes when samples are due."""

    def __init__(self, interval: int, pace: float | None) -> None:
        """Take the nanoseconds between samples, and the speed."""
        self.step = interval / SECOND / pace if pace else 0.0
        self.due = time.monotonic()

    async def wait(self, stop: asyncio.Event) -> float:
        """Wait for a sample, the first of which is due now; return its delay in seconds.

        The wait ends early if `stop` is set.
        """
        behind = time.monotonic() - self.due
        self.due += self.step
        await wait_for_event(stop, max(-behind, 0))
        return max(behind, 0) if self.step else 0.0


async def _publish(
    cluster: SimulatedCluster,
    samples: int | None,
    clock: SampleClock,
    where: SiteOptions,
    seed: int,
    report: Path | None,
) -> None:
    site = where.site()
    bus = Connection(site.bus, name="simulate", telemetry=Telemetry(), forever=False)
    progress, behind = Progress(), 0.0
    run = f"{seed}-{cluster.shape.nodes}-{cluster.time // SECOND}"
    times = array("q") if report else None
    publisher = PayloadPublisher(bus, site, cluster.subjects, run=run, times=times)
    began, spent = time.monotonic(), time.process_time()
    async with stop_signals(None) as stop, bus, publisher:
        for _ in _samples(samples):
            behind = max(behind, await clock.wait(stop))
            if stop.is_set():
                break
            await publisher.publish(cluster.sample())
            progress.show(f"{plural(publisher.lines, 'line')} published")
        await publisher.publish(cluster.end())
    progress.clear()
    taken = time.monotonic() - began
    if report:
        _write_report(report, publisher, taken, time.process_time() - spent)
    note(
        f"{plural(publisher.messages, 'message')}, {plural(publisher.lines, 'line')}, "
        f"{plural(publisher.broken, 'broken line')} published in {taken:.1f} s"
        + (f", at most {behind:.1f} s late" if behind > 1 else "")
    )


def _write_report(path: Path, publisher: PayloadPublisher, seconds: float, cpu: float) -> None:
    assert publisher.times is not None
    summary = {
        "messages": publisher.messages,
        "lines": publisher.lines,
        "broken": publisher.broken,
        "seconds": seconds,
        "cpu_seconds": cpu,
        "peak_bytes": _peak(),
        "published": publisher.times.tolist(),
    }
    try:
        path.write_bytes(msgspec.json.encode(summary))
    except OSError as error:
        raise CreateError(f"--report: {path}: {error.strerror}") from None


def _peak() -> int:
    """Return the peak memory in bytes; getrusage() would include the parent's."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


def _samples(count: int | None) -> Iterator[int]:
    return itertools.count() if count is None else iter(range(count))


def _print(payloads: Iterator[Payload], output: str) -> None:
    for payload in payloads:
        if (payload.lines == 0) == (output == "sonar"):
            sys.stdout.buffer.write(payload.body)
    sys.stdout.buffer.flush()


def _pace(text: str) -> float | None:
    if text == "max":
        return None
    try:
        pace = float(text)
    except ValueError:
        pace = 0.0
    if not 0 < pace < float("inf"):
        raise UsageError(f"--speed: expected a number above 0 or max, not {text!r}")
    return pace


def _positive(number: int, flag: str) -> int:
    if number < 1:
        raise UsageError(f"{flag}: expected at least 1, not {number}")
    return number


def _whole_seconds(since: str) -> int:
    return round(point_in_time(since, "--since") / SECOND) * SECOND


def _nanoseconds(text: str, flag: str) -> int:
    found = seconds(text, flag)
    if not found or found < 1:
        raise UsageError(f"{flag}: expected at least 1s, not {text!r}")
    return round(found) * SECOND
