"""Running a pipe for a command: totals in the log, telemetry while it runs."""

import gc
import urllib.request
from typing import Any

import pytest

from ccpipe.cli.recipe.pipe import GARBAGE_THRESHOLDS, rare_garbage_collection, run_pipe
from ccpipe.errors import ConfigError
from ccpipe.formats.lineprotocol import Lines
from ccpipe.pipeline import Sink
from ccpipe.sinks.null import NullSink
from ccpipe.sources.null import NullSource
from ccpipe.telemetry import Telemetry


async def test_the_totals_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    """Also when the pipe fails."""

    class Broken(Sink[Any]):
        takes = Lines

        async def write(self, records: Lines) -> None:
            raise ConfigError("no")

    with caplog.at_level("INFO"):
        await run_pipe(
            NullSource(batches=2, lines=3), NullSink(), name="bridge x", telemetry=Telemetry()
        )
        with pytest.raises(ConfigError):
            await run_pipe(NullSource(), Broken(), name="bridge y", telemetry=Telemetry())
    texts = [record.getMessage() for record in caplog.records]
    assert "bridge x: 6 records read, 6 written, 0 dead letters" in texts
    assert any(text.startswith("bridge y: 1 records read, 0 written") for text in texts)


async def test_telemetry_is_served_while_it_runs(unused_port: int) -> None:
    """And the port is free again afterwards."""
    seen: list[int] = []

    class Probe(Sink[Any]):
        takes = Lines

        async def write(self, records: Lines) -> None:
            with urllib.request.urlopen(f"http://127.0.0.1:{unused_port}/health") as answer:
                seen.append(answer.status)

    for _ in range(2):
        await run_pipe(
            NullSource(),
            Probe(),
            name="bridge",
            telemetry=Telemetry(),
            listen=f"127.0.0.1:{unused_port}",
        )
    assert seen == [200, 200]


async def test_it_ends_after_its_time() -> None:
    """A source without end is stopped."""
    source = NullSource(batches=10**9, lines=1)
    await run_pipe(source, NullSink(), name="bridge", telemetry=Telemetry(), seconds=0.2)


def test_garbage_is_collected_rarely_while_a_pipe_runs_and_as_before_after_it() -> None:
    """What was there at the start is not looked at; the process gets its own settings back."""
    before = gc.get_threshold()
    with rare_garbage_collection():
        assert gc.get_threshold() == GARBAGE_THRESHOLDS
        assert gc.get_freeze_count() > 0
    assert gc.get_threshold() == before
    assert gc.get_freeze_count() == 0
