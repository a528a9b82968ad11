"""``ccpipe tail``: show messages on the broker as they arrive."""

import asyncio
import functools
import re
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from ccpipe.bus.nats.connection import Connection, Delivery
from ccpipe.bus.subjects import Subjects, matches
from ccpipe.cli.options import Where, seconds
from ccpipe.cli.output import print_json
from ccpipe.cli.tail.idle_hint import IdleHint
from ccpipe.cli.tail.stats import Stats
from ccpipe.cli.tail.stdout import Stdout
from ccpipe.cli.tail.view import RateLimiter, View
from ccpipe.config import Site
from ccpipe.errors import UnavailableError, UsageError
from ccpipe.formats.lineprotocol import Lines, Rejected, decode
from ccpipe.pipeline.signals import stop_signals
from ccpipe.telemetry import Telemetry
from ccpipe.terminal import note, plural
from ccpipe.translate.rules.select import Select

TERMINAL_LIMIT = 200
"""Default maximum of lines per second on a terminal."""

BAD_LIMIT = 20
"""Maximum of bad lines shown per second; all are counted."""

CATEGORIES = {
    "metric": "metrics",
    "other": "metrics",
    "event": "events",
    "log": "log",
    "control": "control",
}
"""The subjects that carry each kind."""

Output = Literal["table", "line", "json", "csv"]
Mode = Literal["lines", "stats", "raw", "raw undecoded"]
"""What is shown; payloads are not decoded where no filter needs it."""
Several = Parameter(negative=())


async def tail(
    *,
    cluster: Annotated[list[str] | None, Several] = None,
    kind: Annotated[
        list[Literal["metric", "event", "log", "control", "other"]] | None, Several
    ] = None,
    node: Annotated[list[str] | None, Several] = None,
    name: Annotated[list[str] | None, Several] = None,
    subject: Annotated[list[str] | None, Several] = None,
    count: int | None = None,
    for_: Annotated[str | None, Parameter(name="--for")] = None,
    limit: int | None = None,
    stats: bool = False,
    raw: bool = False,
    strict: bool = False,
    lenient: bool = False,
    output: Annotated[Output, Parameter(alias="-o")] = "table",
    config: Path | None = None,
    server: str | None = None,
) -> None:
    """Show what is on the bus.

    Without options: all messages of all clusters, until Ctrl-C. Filters may be
    repeated, and all but --kind are patterns (* ? [abc]). On a terminal only a
    sample is shown if there are too many messages; a pipe or a file gets all of
    them. Bad lines, and reasons why nothing arrives, are reported on stderr.

    Examples:
      ccpipe tail --kind event --kind log
      ccpipe tail --node 'f01*' --name 'cpu_*' --for 30s -o csv > cpu.csv
      ccpipe tail --stats --cluster fritz

    Parameters
    ----------
    cluster
        Clusters: a name selects the subjects of that cluster, a pattern is
        matched against the tag.
    kind
        Categories of messages.
    node
        Nodes, by the tag hostname.
    name
        Metrics, event classes, log components or control classes.
    subject
        Subjects to subscribe to instead, with NATS's wildcards * and >.
    count
        Exit after this number of lines.
    for_
        End after this time, such as 30s.
    limit
        Maximum number of lines per second, 0 for all; the default on a terminal
        is 200.
    stats
        Show rates by subject, kind, cluster and name instead of lines.
    raw
        Show payloads unchanged; with filters those in which a line matches.
    strict
        Show with each message which rules of the specification it breaks.
    lenient
        Accept deviations from the grammar that real programs write.
    output
        Format of lines.
    config
        Configuration file; without it $CCPIPE_CONFIG, the user's or the
        system's ccpipe.toml.
    server
        URL of the NATS server, such as nats://127.0.0.1:4222; several with
        commas.
    """
    if stats and output in ("line", "csv"):
        raise UsageError(f"--stats has the formats table and json, not {output}")
    if stats and raw:
        raise UsageError("--stats and --raw cannot be combined")
    if (count is not None and count < 1) or (limit is not None and limit < 0):
        raise UsageError("--count must be at least 1, --limit at least 0")
    site = Where(config=config, server=server).site()
    listening = listen_to(site, kinds=kind or [], clusters=cluster or [], subjects=subject or [])
    duration = seconds(for_, "--for")
    is_filtered = any([kind, node, name, cluster])
    mode: Mode = (
        "stats" if stats else ("raw" if is_filtered else "raw undecoded") if raw else "lines"
    )
    if limit is None:
        limit = TERMINAL_LIMIT if sys.stdout.isatty() else 0
    follow = _Tail(
        Connection(site.bus, name="tail", telemetry=Telemetry()),
        listening,
        View(
            stdout := Stdout(sys.stdout.fileno()), output, limit=limit, count=count, strict=strict
        ),
        without_cluster=Select(kinds=kind or [], nodes=node or [], names=name or []),
        with_cluster=Select(
            kinds=kind or [], nodes=node or [], names=name or [], clusters=cluster or []
        ),
        mode=mode,
        lenient=lenient,
    )
    async with stop_signals(duration) as stop:
        await follow.run(stop)
        await stdout.drain(stop)
    follow.finish(output)
    if stdout.dropped:
        note(f"{plural(stdout.dropped, 'line')} left out: the reader of the output was too slow")
    if duration and not follow.idle_hint.was_connected:
        raise UnavailableError(f"no NATS server answered at {follow.bus.url}")


@dataclass(frozen=True)
class Listening:
    """The subjects that are subscribed to."""

    patterns: list[str]
    of_cluster: list[str]
    """Those of a requested cluster: their messages need no tag ``cluster``."""


def listen_to(
    site: Site, *, kinds: Sequence[str], clusters: Sequence[str], subjects: Sequence[str]
) -> Listening:
    """Choose subjects: those given, else those of the requested kinds and clusters.

    Raises
    ------
    UsageError
        for an invalid subject.

    """
    for subject in subjects:
        if not all(subject.split(".")) or re.search(r"\s", subject):
            raise UsageError(f"--subject: not a subject: {subject!r}")
    if subjects:
        return Listening(list(dict.fromkeys(subjects)), [])
    known = Subjects.of(site)
    categories = list(dict.fromkeys(CATEGORIES[kind] for kind in kinds or CATEGORIES))
    everywhere = known.patterns(categories, "*")
    if not clusters or any(re.search(r"[*?\[]", cluster) for cluster in clusters):
        return Listening(everywhere, [])
    named = [known.patterns(categories, cluster) for cluster in clusters]
    patterns = list(dict.fromkeys(pattern for group in named for pattern in group))
    return Listening(patterns, [p for p in patterns if p not in everywhere])


class _Tail:
    """A running ``ccpipe tail``."""

    def __init__(
        self,
        bus: Connection,
        listening: Listening,
        view: View,
        *,
        without_cluster: Select,
        with_cluster: Select,
        mode: Mode,
        lenient: bool,
    ) -> None:
        self.bus = bus
        self.listening = listening
        self.view = view
        self.without_cluster = without_cluster
        self.with_cluster = with_cluster
        self.mode = mode
        self.lenient = lenient
        self.stats = Stats()
        self.idle_hint = IdleHint(bus, listening.patterns)
        self.bad = self.reported_left_out = 0
        self.bad_limiter = RateLimiter(BAD_LIMIT)
        self.redraws = mode == "stats" and sys.stdout.isatty()
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def run(self, stop: asyncio.Event) -> None:
        """Show messages until stopped or until `count` is reached."""
        tasks = [
            asyncio.create_task(self.listen()),
            asyncio.create_task(self.report_periodically()),
            asyncio.create_task(stop.wait()),
        ]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def listen(self) -> None:
        patterns = self.listening.patterns
        async with self.bus:
            for place, pattern in enumerate(patterns):
                receive = functools.partial(self.receive, patterns[:place])
                await self.bus.subscribe(pattern, receive)
            if sys.stderr.isatty():
                note(f"{self.bus.url}: listening to {', '.join(patterns)}")
            await self.ended

    def receive(self, earlier: Sequence[str], delivery: Delivery) -> None:
        """Handle one payload, once, even if several patterns match its subject."""
        if self.ended.done() or any(matches(pattern, delivery.subject) for pattern in earlier):
            return
        try:
            self.take(delivery)
            if self.view.is_full:
                self.ended.set_result(None)
        except Exception as error:  # noqa: BLE001 - the client would only log it
            self.ended.set_exception(error)

    def take(self, delivery: Delivery) -> None:
        payload = delivery.payload
        self.stats.payloads += 1
        self.stats.bytes += len(payload)
        if self.mode == "raw undecoded":
            self.idle_hint.record_lines(1, 1)
            self.view.show_payload(payload)
            return
        lines = decode(payload, lenient=self.lenient)
        self.report_rejected(delivery.subject, lines.rejected)
        kept = self.select(delivery.subject).feed(lines)
        assert isinstance(kept, Lines)
        self.idle_hint.record(lines, kept)
        self.stats.add(delivery.subject, kept)
        if self.mode == "lines":
            self.view.show(kept)
        elif self.mode == "raw" and len(kept):
            self.view.show_payload(payload)
        elif self.mode == "stats":
            self.view.shown += len(kept)

    def select(self, subject: str) -> Select:
        without_cluster = any(matches(pattern, subject) for pattern in self.listening.of_cluster)
        return self.without_cluster if without_cluster else self.with_cluster

    def report_rejected(self, subject: str, rejected: Sequence[Rejected]) -> None:
        self.bad += len(rejected)
        if self.redraws:
            return  # the summary counts them; lines between two screens would flicker
        for bad in rejected[: self.bad_limiter.take(len(rejected))]:
            note(f"{subject}: {bad}", "red")

    async def report_periodically(self) -> None:
        """Report idleness and omitted lines; redraw statistics on a terminal."""
        while True:
            await asyncio.sleep(1)
            self.idle_hint.report()
            if fresh := self.view.left_out - self.reported_left_out:
                self.reported_left_out = self.view.left_out
                note(f"… {plural(fresh, 'line')} left out; --limit 0 shows all")
            if self.redraws:
                size = shutil.get_terminal_size()
                lines = [self.summary(), "", *self.stats.report(size.lines - 3, size.columns)]
                print("\x1b[H\x1b[J" + "\n".join(lines), flush=True)

    def finish(self, output: Output) -> None:
        """Print statistics that were not shown yet, and a summary on stderr."""
        if self.mode == "stats" and output == "json":
            print_json(self.stats.as_json())
        elif self.mode == "stats" and not self.redraws:
            print("\n".join(self.stats.report()))
        note(self.summary())

    def summary(self) -> str:
        counts = {
            "shown": self.view.shown,
            "left out by --limit": self.view.left_out,
            "filtered out": self.idle_hint.received - self.idle_hint.matched,
            "could not be read": self.bad,
            "could not be written": self.view.refused,
            "break rules": self.view.problems,
        }
        reported = [
            f"{count:,} {what}".replace(",", " ") for what, count in counts.items() if count
        ]
        return "; ".join([self.stats.summary(), *reported])
