"""The publisher: its pipes over one connection, and reloading.

There are three pipes, for metrics, Sonar's envelopes and the publisher's own log; control requests
are answered as well. The log has its own pipe, so that a broker that rejects log lines does not
block metrics.
"""

import asyncio
import contextlib
import dataclasses
import functools
import logging
import signal
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import msgspec

from ccpipe.bus.codecs.line import LineCodec
from ccpipe.bus.codecs.sonar import SonarCodec
from ccpipe.bus.nats.connection import Connection
from ccpipe.bus.nats.sink import NatsSink
from ccpipe.config import Interval, Site, state_directory
from ccpipe.errors import CcpipeError
from ccpipe.formats.lineprotocol import Lines
from ccpipe.formats.sonar import Envelope, Envelopes
from ccpipe.node.agent import systemd
from ccpipe.node.agent.controls import controls
from ccpipe.node.agent.log import LogSource
from ccpipe.node.agent.parts import AgentParts, with_profile
from ccpipe.node.agent.responder import Responder
from ccpipe.node.agent.spooling import SpoolReplay, open_replay, spooling
from ccpipe.node.collectors.sonar.envelope import Errors
from ccpipe.node.collectors.sonar.sysinfo import SonarSysinfo
from ccpipe.node.linux.nvml import RELEASE
from ccpipe.node.sampling.sampler import Sampler
from ccpipe.pipeline import Limits, Sink, Stages, run
from ccpipe.process.background import background
from ccpipe.process.signals import has_terminal, stop_signals
from ccpipe.sinks.dead_letter_file import NODE_BYTES, DeadLetterFile
from ccpipe.telemetry import Telemetry

log = logging.getLogger(__name__)

RELEASE_SECONDS = 120  # time for which NVML is not used after SIGUSR1

LOG = Limits(max_wait=1.0, max_memory=4 * 2**20, stop_timeout=0.5)
# An envelope counts as a kilobyte here: enough for about ten hours.
ENVELOPES = Limits(max_wait=0.0, max_memory=128 * 2**10)

ONCE_SECONDS = 30.0
"""Time limit of ``--once``; messages not accepted by then become dead letters."""

_SLACK = 5.0  # seconds that a busy machine may be late before systemd's watchdog is not notified


class Agent:
    """A publisher, built from a configuration that can be reloaded while it runs."""

    def __init__(
        self, read: Callable[[], Site], path: Path | None, *, once: bool, telemetry: Telemetry
    ) -> None:
        """Build it from what `read` returns; `path` is the file that errors name."""
        self._read = read
        self._path = path
        self.once = once
        self.telemetry = telemetry
        self.parts = AgentParts.of(with_profile(read()), path, telemetry)
        self.metrics = Sampler(self.parts.of_metrics(), once=once, telemetry=telemetry)
        self.sonar: Sampler | None = None  # of envelopes, from when one of them is enabled
        self._sonar_enabled = asyncio.Event()
        self.stages = Stages(self.parts.translators, Lines)
        self._reload_requested = asyncio.Event()
        self._responder: Responder | None = None
        self._log = LogSource(
            site=self.site, level=self.site.publish.log_level, telemetry=telemetry
        )
        self._usual_level = logging.getLogger().level
        if self.parts.sonar:
            self._enable_sonar(self.parts)

    @property
    def site(self) -> Site:
        return self.parts.site

    def _enable_sonar(self, parts: AgentParts) -> None:
        self.sonar = envelope_sampler(parts, once=self.once)
        self._sonar_enabled.set()

    @property
    def _samplers(self) -> list[Sampler]:
        return [self.metrics, *([self.sonar] if self.sonar else [])]

    def dead_letter_file(self) -> Path:
        return Path(self.site.publish.dead_letter_file or state_directory() / "dead.lp")

    async def run(self, seconds: float | None) -> None:
        """Publish until a signal or for `seconds`; with ``once``, one sample."""
        site = self.site
        bus = Connection(
            site.bus, name="publisher", telemetry=self.telemetry, forever=not self.once
        )
        async with contextlib.AsyncExitStack() as stack:
            if site.telemetry.listen:
                stack.callback(self.telemetry.serve(site.telemetry.listen).close)
            limit = (seconds or ONCE_SECONDS) if self.once else seconds
            stop = await stack.enter_async_context(stop_signals(limit))
            stack.push_async_exit(bus.__aexit__)
            if self.once:
                await bus.__aenter__()  # without a broker, sampling is pointless
            else:
                loop = asyncio.get_running_loop()
                hang_up = functools.partial(self._hang_up, stop, had_terminal=has_terminal())
                loop.add_signal_handler(signal.SIGHUP, hang_up)
                stack.callback(loop.remove_signal_handler, signal.SIGHUP)
                loop.add_signal_handler(signal.SIGUSR1, _release_nvml)
                stack.callback(loop.remove_signal_handler, signal.SIGUSR1)
                await stack.enter_async_context(self._logging(bus))
                await bus.connect_in_background()
                await self._start_service(stack, bus, stop)
            stack.callback(self._log_totals)
            await self._run_pipes(bus, stop)

    def _hang_up(self, stop: asyncio.Event, *, had_terminal: bool) -> None:
        """Reload, as services do at SIGHUP; end if it was sent because the terminal closed."""
        is_closed = had_terminal and not has_terminal()
        (stop if is_closed else self._reload_requested).set()

    async def _start_service(
        self, stack: contextlib.AsyncExitStack, bus: Connection, stop: asyncio.Event
    ) -> None:
        """Start what only a long-running publisher needs: control, reload, notifications."""
        if self.site.publish.control.enabled:
            known = controls(
                site=lambda: self.site,
                collectors=lambda: {
                    name: state
                    for sampler in self._samplers
                    for name, state in sampler.states().items()
                },
                sysinfo=self._sysinfo,
                set_interval=self.set_interval,
            )
            self._responder = Responder(bus, self.site, known, self.telemetry)
            await stack.enter_async_context(self._responder)
        work = {
            "reload": self._reload_on_request(),
            "systemd": self._notify_systemd(bus),
            "stopping": _notify_stopping(stop),
        }
        for name, each in work.items():
            stack.push_async_callback(_cancel, background(each, f"ccpipe-{name}"))

    async def _run_pipes(self, bus: Connection, stop: asyncio.Event) -> None:
        """Run the pipes of metrics and envelopes; if one fails, both end."""
        line = LineCodec(precision=self.site.publish.precision)
        lines = NatsSink(codec=line, site=self.site, telemetry=self.telemetry).using(bus)
        async with contextlib.AsyncExitStack() as stack:
            replay = await self._spool(stack, lines)
            await _until_one_fails(
                self._run_metrics(spooling(lines, replay, stop.is_set), stop),
                self._run_envelopes(bus, replay, stop),
                stop,
            )

    async def _run_metrics(self, sink: Sink[Any], stop: asyncio.Event) -> None:
        await run(
            self.metrics,
            sink,
            translators=self.stages,
            dead_letter_sink=DeadLetterFile(self.dead_letter_file(), max_bytes=NODE_BYTES),
            limits=sink.limits,
            telemetry=self.telemetry,
            stop=stop,
        )

    async def _run_envelopes(
        self, bus: Connection, replay: SpoolReplay | None, stop: asyncio.Event
    ) -> None:
        """Run the pipe of envelopes once they are enabled, at the start or by a reload."""
        if not self.once:
            await _first_of(self._sonar_enabled, stop)
        if self.sonar is None:
            return
        dead = self.dead_letter_file()
        codec = SonarCodec(profile=self.site.publish.sonar.profile)
        sink = NatsSink(codec=codec, site=self.site, telemetry=self.telemetry).using(bus)
        await run(
            self.sonar,
            spooling(sink, replay, stop.is_set),
            dead_letter_sink=DeadLetterFile(
                dead.with_name(f"{dead.name}.sonar"), max_bytes=NODE_BYTES
            ),
            limits=ENVELOPES,
            telemetry=Telemetry(),  # separate: /metrics and readiness cover metrics only
            stop=stop,
        )

    async def _spool(self, stack: contextlib.AsyncExitStack, sink: NatsSink) -> SpoolReplay | None:
        options = self.site.publish.spool
        if self.once or not options.enabled:
            return None
        path = Path(options.dir or state_directory() / "spool")
        dead = DeadLetterFile(self.dead_letter_file(), max_bytes=NODE_BYTES)
        replay = await open_replay(sink, path, dead, self.telemetry)
        await stack.enter_async_context(replay.running())
        return replay

    @contextlib.asynccontextmanager
    async def _logging(self, bus: Connection) -> AsyncIterator[None]:
        end = asyncio.Event()

        async def publish() -> None:
            sink = _LogSink(NatsSink(site=self.site, telemetry=self.telemetry).using(bus), end)
            try:
                await run(self._log, sink, limits=LOG, telemetry=Telemetry(), stop=end)
            except CcpipeError as error:
                log.warning("the log is not published: %s", error)

        self._set_log_level(self.site.publish.log_level)
        task = background(publish(), "ccpipe-log")
        try:
            yield
        finally:
            end.set()
            await asyncio.wait({task})

    def _set_log_level(self, level: str) -> None:
        """Publish log lines from `level` on; stderr is not affected."""
        self._log.change(level)
        root = logging.getLogger()
        if level == "debug":
            for handler in root.handlers:
                if handler is not self._log:
                    handler.setLevel(max(handler.level, self._usual_level))
        root.setLevel(logging.DEBUG if level == "debug" else self._usual_level)

    def _log_totals(self) -> None:
        log.info(
            "publisher: %d records read, %d written, %d dead letters",
            self.telemetry.total(self.telemetry.read),
            self.telemetry.total(self.telemetry.written),
            self.telemetry.total(self.telemetry.dead),
        )

    async def _reload_on_request(self) -> None:
        while True:
            await self._reload_requested.wait()
            self._reload_requested.clear()
            systemd.reloading()
            try:
                await self.reload()
            except Exception as error:  # noqa: BLE001 - whatever is wrong with it, publishing goes on
                expected = isinstance(error, CcpipeError)
                log.error(  # noqa: TRY400
                    "reload failed, keeping the current configuration: %s",
                    error if expected else f"{type(error).__name__}: {error}",
                )
            finally:
                systemd.notify("READY=1")

    async def reload(self) -> None:
        """Load the configuration again and apply it; if it is invalid nothing changes."""
        parts = await asyncio.to_thread(self._read_parts)
        self._apply(parts)
        log.info("configuration reloaded")

    def _read_parts(self) -> AgentParts:
        read = with_profile(self._read())
        site, changed = keep_fixed_settings(read, self.site)
        if changed:
            log.warning("%s: changed; takes effect after a restart", ", ".join(changed))
        return AgentParts.of(site, self._path, self.telemetry, self.parts)

    async def set_interval(self, seconds: float) -> None:
        """Set the interval of metrics until the configuration is reloaded."""
        publish = msgspec.structs.replace(self.site.publish, interval=Interval(seconds))
        site = msgspec.structs.replace(self.site, publish=publish)
        self._apply(dataclasses.replace(self.parts, site=site))

    def _apply(self, parts: AgentParts) -> None:
        metrics, sonar = parts.of_metrics(), parts.of_sonar()  # invalid ones raise: nothing changed
        if parts.translators is not self.parts.translators:
            self.stages.replace(parts.translators)
        self.metrics.reload(metrics)
        if self.sonar:
            self.sonar.reload(sonar)
        elif parts.sonar:
            self._enable_sonar(parts)
        self._set_log_level(parts.site.publish.log_level)
        self.parts = parts
        if self._responder is not None:
            self._responder.allowed = parts.site.publish.control.allow

    async def _notify_systemd(self, bus: Connection) -> None:
        """Notify systemd when everything is ready, and from then on while sampling continues."""
        await self.metrics.armed.wait()
        systemd.notify("READY=1")
        period = systemd.watchdog()
        while True:
            late = time.monotonic() - min(sampler.expected for sampler in self._samplers)
            if period is not None and late < _SLACK:
                systemd.notify("WATCHDOG=1")
            systemd.notify(f"STATUS={self._status(bus)}")
            await asyncio.sleep(10 if period is None else period / 2)

    def _status(self, bus: Connection) -> str:
        states = [state["state"] for state in self.metrics.states().values()]
        where = "connected to" if bus.is_connected else "waiting for"
        written = self.telemetry.total(self.telemetry.written)
        return f"{states.count('on')} collectors, {written} lines published, {where} {bus.url}"

    def _sysinfo(self) -> Iterator[Envelope]:
        return sysinfo(self.site)


class _LogSink(Sink[Lines]):
    """Publishes log lines; at the end, without a broker, it drops them.

    They are on stderr already, and would be logged there a second time as dead letters.
    """

    takes = Lines

    def __init__(self, sink: NatsSink, end: asyncio.Event) -> None:
        self._sink = sink
        self._end = end

    async def write(self, records: Lines) -> None:
        if not self._end.is_set() or self._sink.bus.is_connected:
            await self._sink.write(records)


_FIXED = (
    "bus",
    "cluster",
    "hostname",
    "telemetry",
    "publish.dead_letter_file",
    "publish.precision",
    "publish.spool",
    "publish.control.enabled",
)


def keep_fixed_settings(read: Site, old: Site) -> tuple[Site, list[str]]:
    """Return a configuration with settings that cannot change at runtime reset to the current ones.

    The second value contains the key paths of the ignored changes.
    """
    site = read
    for key in _FIXED:
        site = _with(site, key, _at(old, key))
    return site, [key for key in _FIXED if _at(read, key) != _at(site, key)]


def _with(part: Any, key: str, value: Any) -> Any:
    name, _, below = key.partition(".")
    changed = _with(getattr(part, name), below, value) if below else value
    return msgspec.structs.replace(part, **{name: changed})


def _at(value: Any, key: str) -> Any:
    for step in key.split("."):
        value = getattr(value, step)
    return value


async def _notify_stopping(stop: asyncio.Event) -> None:
    await stop.wait()
    systemd.notify("STOPPING=1")


async def _first_of(*events: asyncio.Event) -> None:
    waiting = [asyncio.create_task(event.wait()) for event in events]
    try:
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for each in waiting:
            each.cancel()


async def _until_one_fails(
    first: Coroutine[Any, Any, None], second: Coroutine[Any, Any, None], stop: asyncio.Event
) -> None:
    pipes = [asyncio.create_task(first), asyncio.create_task(second)]
    try:
        await asyncio.wait(pipes, return_when=asyncio.FIRST_EXCEPTION)
        stop.set()
        await asyncio.wait(pipes)
    finally:
        for pipe in pipes:
            pipe.cancel()
    for error in [error for pipe in pipes if (error := pipe.exception())][:1]:
        raise error


async def _cancel(task: "asyncio.Task[None]") -> None:
    task.cancel()
    await asyncio.wait({task})


def _release_nvml() -> None:
    log.info("SIGUSR1: NVML is released for %d s, from the next sample on", RELEASE_SECONDS)
    RELEASE.begin(RELEASE_SECONDS)


def envelope_sampler(parts: AgentParts, *, once: bool) -> Sampler:
    settings = parts.of_sonar()
    if once:  # two readings a second apart, not minutes
        settings = msgspec.structs.replace(settings, interval=1.0, intervals={}, jitter=0.0)
    return Sampler(
        settings,
        once=once,
        at_start=("sonar_sysinfo",),
        gives=Envelopes,
        pack=lambda parts: Envelopes([each for part in parts for each in part.records]),
        record=Envelope,
        make_error=functools.partial(_failure, parts.site),
    )


def sysinfo(site: Site) -> Iterator[Envelope]:
    described = SonarSysinfo(cluster=site.cluster, node=site.hostname, lstopo=False)
    return described.collect(time.time_ns())


def _failure(site: Site, slot: int, text: str) -> Envelope:
    errors = Errors()
    errors.note(text)
    return errors.envelope(slot, site.cluster, site.hostname)
