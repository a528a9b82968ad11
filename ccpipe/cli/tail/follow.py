"""A running ``tail``: from received messages to lines, statistics, and hints if none arrive."""

import asyncio
import contextlib
import functools
import shutil
import sys
import time
from collections.abc import Sequence
from typing import Literal

from ccpipe.bus.nats.connection import Connection
from ccpipe.bus.nats.protocol.frames import Delivery
from ccpipe.bus.nats.streams.stored import read_stored, stored_patterns
from ccpipe.bus.subjects import Subjects, matches
from ccpipe.cli.console.options import seconds
from ccpipe.cli.console.output import print_json
from ccpipe.cli.tail.options import Options
from ccpipe.cli.tail.selection import JobNodes, MessageFilter, patterns_of
from ccpipe.cli.tail.stats import Stats
from ccpipe.cli.tail.view import RateLimiter, Stdout, TailView, envelopes
from ccpipe.errors import CcpipeError, DeniedError, UnavailableError
from ccpipe.formats.lineprotocol import Lines, decode
from ccpipe.process.background import background, end_tasks
from ccpipe.process.signals import stop_signals
from ccpipe.telemetry import Telemetry
from ccpipe.terminal import listed, note, plural, printable

TERMINAL_RATE = 200
"""Default maximum of lines per second on a terminal."""

SEARCH_SECONDS = 10.0
"""Time limit for searching the starts of jobs before messages are shown."""

BAD_LIMIT = 20
"""Maximum of bad lines shown per second; all are counted."""

Mode = Literal["lines", "stats", "raw", "raw undecoded"]
"""Formats; payloads are decoded only if a filter needs it."""


async def follow(options: Options) -> None:
    """Show the selected messages until stopped."""
    options.check()
    end_after = seconds(options.for_, "--for")
    stdout = Stdout(sys.stdout.fileno())
    tail = _Tail(options, stdout)
    async with stop_signals(end_after) as stop:
        await tail.run(stop)
        await stdout.drain(stop)
    tail.finish()
    if stdout.dropped:
        note(f"{plural(stdout.dropped, 'line')} left out: the reader of the output was too slow")
    if end_after and not tail.idle_hint.was_connected:
        raise UnavailableError(f"no NATS server answered at {tail.bus.url}")


async def find_starts(
    bus: Connection, patterns: Sequence[str], jobs: JobNodes, *, until: int | None = None
) -> None:
    """Find the nodes of jobs in stored events; without JetStream only new ones are seen.

    Events stored after `until`, in nanoseconds since the epoch, are left out.
    """

    def learn(delivery: Delivery) -> None:
        if until is not None and delivery.arrival > until:
            return
        with contextlib.suppress(CcpipeError):
            for message in decode(delivery.payload, lenient=True):
                jobs.add_event(message)

    try:
        async with asyncio.timeout(SEARCH_SECONDS):
            await read_stored(bus, patterns, learn)
    except (UnavailableError, DeniedError) as error:
        note(f"stored starts of jobs cannot be read: {error}", "yellow")
    except TimeoutError:
        pass
    if not jobs.nodes:
        note(f"no start of {printable(str(jobs))} was found: waiting for one", "yellow")


class _Tail:
    """Shows messages."""

    def __init__(self, options: Options, stdout: Stdout) -> None:
        site, rate = options.where.site(), options.rate
        if rate is None:
            rate = TERMINAL_RATE if sys.stdout.isatty() else 0
        self.options, self.until = options, options.end
        self.bus = Connection(site.bus, name="tail", telemetry=Telemetry(), forever=False)
        self.view = TailView(
            stdout.write, options.output, rate=rate, count=options.count, strict=options.strict
        )
        self.patterns, of_cluster = patterns_of(site, options)
        self.selection = MessageFilter(options, of_cluster)
        [self.dead] = Subjects.of(site).patterns(["dead"], "*")
        self.events = Subjects.of(site).patterns(["events"], "*")
        self.mode: Mode = "lines"
        if options.stats:
            self.mode = "stats"
        elif options.raw:
            self.mode = "raw" if self.selection.is_filtered else "raw undecoded"
        self.stats = Stats()
        self.idle_hint = IdleHint(self.bus, self.patterns)
        self.bad = self.reported_left_out = 0
        self.bad_limiter = RateLimiter(BAD_LIMIT)
        self.redraws = self.mode == "stats" and sys.stdout.isatty()
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def run(self, stop: asyncio.Event) -> None:
        """Show messages until stopped or until `count` is reached."""
        tasks = [
            asyncio.create_task(self.listen()),
            asyncio.create_task(self.report_periodically()),
            asyncio.create_task(stop.wait()),
        ]
        units = background(self.view.load_units(), "ccpipe-units")
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            await end_tasks([*tasks, units])

    async def listen(self) -> None:
        async with self.bus:
            if self.selection.jobs is not None:
                # which of a user's jobs run depends on the time from which messages are shown
                until = self.first_shown if self.options.user else None
                if until != 0:
                    await find_starts(self.bus, self.events, self.selection.jobs, until=until)
            stored = await self.stored()
            live = [pattern for pattern in self.patterns if pattern not in stored]
            for place, pattern in enumerate(live):
                await self.bus.subscribe(pattern, functools.partial(self.receive, live[:place]))
            if sys.stderr.isatty():
                note(f"{self.bus.url}: listening to {', '.join(self.patterns)}")
            reading = asyncio.create_task(self.read(stored))
            try:
                await asyncio.wait({reading, self.ended}, return_when=asyncio.FIRST_COMPLETED)
                if reading.done():
                    reading.result()
                    if self.options.is_following:
                        await self.ended
                else:
                    self.ended.result()
            finally:
                await end_tasks([reading])

    @property
    def first_shown(self) -> int | None:
        """Where the shown messages begin, in nanoseconds since the epoch; None for now."""
        return (self.options.begin or 0) if self.options.is_history else None

    async def stored(self) -> list[str]:
        if not self.options.is_history:
            return []
        stored = await stored_patterns(self.bus, self.patterns)
        if not stored:
            note(f"no stream stores {', '.join(self.patterns)}: new messages only", "yellow")
        return sorted(stored)

    async def read(self, stored: Sequence[str]) -> None:
        receive = functools.partial(self.receive, ())
        if stored:
            begin, follow = self.options.begin, self.options.is_following
            await read_stored(self.bus, stored, receive, since=begin, follow=follow)

    def receive(self, earlier: Sequence[str], delivery: Delivery) -> None:
        """Handle one payload, once, even if several patterns match its subject."""
        is_late = self.until is not None and delivery.arrival > self.until
        if (
            is_late
            or self.ended.done()
            or any(matches(pattern, delivery.subject) for pattern in earlier)
        ):
            return
        try:
            self.take(delivery)
            if self.view.is_full:
                self.ended.set_result(None)
        except Exception as error:  # noqa: BLE001 - the client would only log it
            self.ended.set_exception(error)

    def take(self, delivery: Delivery) -> None:
        self.stats.payloads += 1
        self.stats.bytes += len(delivery.payload)
        if self.mode == "raw undecoded":
            self.idle_hint.record_lines(1, 1)
            self.view.show_payload(delivery.payload)
        elif matches(self.dead, delivery.subject):
            self.take_dead_letter(delivery)
        elif delivery.payload.lstrip()[:1] == b"{":
            self.take_envelopes(delivery)
        else:
            self.take_lines(delivery)

    def take_lines(self, delivery: Delivery) -> None:
        lines = decode(delivery.payload, lenient=self.options.lenient)
        for bad in lines.rejected:
            self.report_bad(f"{delivery.subject}: {bad}")
        kept = self.selection.lines(delivery.subject, lines)
        self.idle_hint.record(lines, kept)
        self.stats.add(delivery.subject, kept)
        if self.mode == "lines":
            self.view.show(kept)
        elif self.mode == "raw" and len(kept):
            self.view.show_payload(delivery.payload)
        elif self.mode == "stats":
            self.view.shown += len(kept)

    def take_envelopes(self, delivery: Delivery) -> None:
        try:
            found = list(envelopes(delivery.payload))
        except (ValueError, RecursionError) as error:
            self.report_bad(f"{delivery.subject}: not JSON: {printable(str(error))}")
            return
        kept = [envelope for envelope in found if self.selection.envelope(envelope)]
        self.idle_hint.record_lines(len(found), len(kept))
        self.stats.add_other(delivery.subject, "sonar", len(kept))
        if self.mode == "raw" and kept:
            self.view.show_payload(delivery.payload)
        elif self.mode == "lines":
            is_only = [*self.options.kind] == ["sonar"]
            for envelope in kept:
                self.view.show_envelope(envelope, delivery.arrival, whole=is_only)
        elif self.mode == "stats":
            self.view.shown += len(kept)

    def take_dead_letter(self, delivery: Delivery) -> None:
        kept = self.selection.has_dead_letters
        self.idle_hint.record_lines(1, int(kept))
        self.stats.add_other(delivery.subject, "dead", int(kept))
        if kept and self.mode == "raw":
            self.view.show_payload(delivery.payload)
        elif kept and self.mode == "lines":
            self.view.show_dead_letter(delivery)
        elif kept:
            self.view.shown += 1

    def report_bad(self, text: str) -> None:
        self.bad += 1
        # The summary counts them; lines between two screens of statistics would flicker.
        if not self.redraws and self.bad_limiter.take(1):
            note(text, "red")

    async def report_periodically(self) -> None:
        while True:
            await asyncio.sleep(1)
            self.idle_hint.report()
            if fresh := self.view.left_out - self.reported_left_out:
                self.reported_left_out = self.view.left_out
                note(f"… {plural(fresh, 'line')} left out; --rate 0 shows all")
            if self.redraws:
                size = shutil.get_terminal_size()
                lines = [self.summary(), "", *self.stats.report(size.lines - 3, size.columns)]
                print("\x1b[H\x1b[J" + "\n".join(lines), flush=True)

    def finish(self) -> None:
        if self.mode == "stats" and self.options.output == "json":
            print_json(self.stats.as_json())
        elif self.mode == "stats" and not self.redraws:
            print("\n".join(self.stats.report()))
        note(self.summary())

    def summary(self) -> str:
        counts = {
            "shown": self.view.shown,
            "left out by --rate": self.view.left_out,
            "filtered out": self.idle_hint.received - self.idle_hint.matched,
            "could not be read": self.bad,
            "could not be written": self.view.refused,
            "break rules": self.view.problems,
        }
        reported = [
            f"{count:,} {what}".replace(",", " ") for what, count in counts.items() if count
        ]
        return "; ".join([self.stats.summary(), *reported])


MAX_SEEN = 1000


class IdleHint:
    """Detects that nothing is shown and explains why."""

    DELAY = {  # noqa: RUF012 - read, never changed
        "unconnected": 2.0,
        "no messages": 5.0,
        "no matches": 5.0,
        "paused": 60.0,
    }

    def __init__(self, bus: Connection, patterns: Sequence[str]) -> None:
        self.bus = bus
        self.patterns = patterns
        self.was_connected = False
        self.received = self.matched = 0
        self._seen: dict[str, dict[str, None]] = {"cluster": {}, "node": {}, "name": {}}
        self._kind = ""
        self._since = self._last_received = time.monotonic()
        self._reported = False

    def record(self, lines: Lines, matched: Lines) -> None:
        self.record_lines(len(lines), len(matched))
        if self.matched:
            return
        for code in dict.fromkeys(lines.series):
            name, tags, _ = lines.table.series[code]
            labels = (tags.get("cluster", "-"), tags.get("hostname", "-"), name)
            for seen, label in zip(self._seen.values(), labels, strict=True):
                if len(seen) < MAX_SEEN:
                    seen[label] = None

    def record_lines(self, count: int, matched: int) -> None:
        self.was_connected = True
        self.received += count
        self.matched += matched
        self._last_received = time.monotonic()

    def report(self) -> None:
        kind, now = self._state(), time.monotonic()
        if kind != self._kind:
            if self._kind == "unconnected" and self._reported:
                note(f"connected to {self.bus.url}")
            self._kind, self._since, self._reported = kind, now, False
        start = self._last_received if kind == "paused" else self._since
        if kind and not self._reported and now - start >= self.DELAY[kind]:
            self._reported = True
            note(self._explanation(kind), "yellow")

    def _state(self) -> str:
        if not self.bus.is_connected:
            return "unconnected"
        self.was_connected = True
        if not self.received:
            return "no messages"
        return "paused" if self.matched else "no matches"

    def _explanation(self, kind: str) -> str:
        seen = "; ".join(f"{what}s {printable(listed(of))}" for what, of in self._seen.items())
        return {
            "unconnected": f"not connected to {self.bus.url}, trying again: does a server run"
            " there? `ccpipe up` starts one; --server or `servers` in [bus] names another",
            "no messages": f"connected to {self.bus.url}, but no messages have arrived on"
            f" {', '.join(self.patterns)}: does a publisher run (`ccpipe publish`, or"
            " `ccpipe up`)? By default it sends every 10 s",
            "no matches": f"{plural(self.received, 'line')} received, none matches; seen: {seen}",
            "paused": f"no messages for {self.DELAY['paused']:.0f} s",
        }[kind]
