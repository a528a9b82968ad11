"""Several recipes in one process: what they share, and that each is named."""

import asyncio
import logging
import urllib.request
from collections.abc import Sequence
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from ccpipe.cli.console.log import PrintableFormatter
from ccpipe.cli.recipe.pipe import Pipe
from ccpipe.cli.recipe.several import run_pipes
from ccpipe.errors import ConfigError, DeniedError
from ccpipe.formats.lineprotocol import Lines
from ccpipe.message import Message
from ccpipe.pipeline import Sink, Source
from ccpipe.sinks.null import NullSink
from ccpipe.sources.null import NullSource
from ccpipe.telemetry import Telemetry
from tests.pipeline.parts import ListSink, ListSource, made


class Failing(Sink[Any]):
    """Fails permanently, once it is told to."""

    takes = Lines

    def __init__(self, error: Exception, after: asyncio.Event | None = None) -> None:
        self.error, self.after = error, after

    async def write(self, records: Lines) -> None:
        if self.after is not None:
            await self.after.wait()
        raise self.error


class Telling(ListSink):
    """Tells that it has written."""

    def __init__(self) -> None:
        super().__init__()
        self.has_written = asyncio.Event()

    async def write(self, records: Sequence[Message]) -> None:
        await super().write(records)
        self.has_written.set()


def pipe_of(source: Source[Any], sink: Sink[Any], *, listen: str = "") -> Pipe:
    return Pipe(source=source, sink=sink, name="bridge", telemetry=Telemetry(), listen=listen)


def endless() -> Source[Any]:
    return NullSource(batches=10**9, lines=1)


async def test_pipes_run_until_each_has_ended() -> None:
    """One whose source ends does not end the others."""
    sink = ListSink()
    late = ListSource([list(made(number)) for number in range(3)], delays=[0.1, 0.1, 0.1])
    await run_pipes({"a": pipe_of(NullSource(), NullSink()), "b": pipe_of(late, sink)})
    assert len(sink.written) == 3


async def test_pipes_end_together_when_time_is_over() -> None:
    """The time is that of the process."""
    each = {name: pipe_of(endless(), NullSink()) for name in "ab"}
    await run_pipes(each, seconds=0.2)
    assert all(pipe.telemetry.total(pipe.telemetry.written) for pipe in each.values())


async def test_error_names_recipe_and_stops_others(caplog: pytest.LogCaptureFixture) -> None:
    """They end as by a signal: what they have read is written; the exit code is the error's."""
    sink = Telling()
    failing = Failing(DeniedError("no permission"), after=sink.has_written)
    other = pipe_of(endless(), sink)
    with pytest.raises(DeniedError, match="^fritz: no permission$"):
        await run_pipes({"fritz": pipe_of(NullSource(), failing), "alex": other})
    telemetry = other.telemetry
    assert telemetry.total(telemetry.written) == telemetry.total(telemetry.read) > 0
    assert "fritz: no permission" in caplog.messages


async def test_first_of_several_errors_is_raised_and_all_are_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Nothing is hidden by the error that comes first."""
    first = {"a": pipe_of(NullSource(), Failing(ConfigError("bad table")))}
    second = {"b": pipe_of(NullSource(), Failing(DeniedError("no permission")))}
    with pytest.raises((ConfigError, DeniedError)):
        await run_pipes({**first, **second})
    assert {"a: bad table", "b: no permission"} <= set(caplog.messages)


async def test_unexpected_error_names_recipe_in_its_note() -> None:
    """Its traceback shows the note."""
    failing = Failing(ValueError("a fault"))
    with pytest.raises(ValueError, match="a fault") as caught:
        await run_pipes({"fritz": pipe_of(NullSource(), failing)})
    assert caught.value.__notes__ == ["in the recipe fritz"]


async def test_log_lines_name_recipe() -> None:
    """Also those of threads that a part runs."""
    lines: list[str] = []

    class Collecting(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(PrintableFormatter("%(levelname)s %(message)s").format(record))

    class Logging(Sink[Any]):
        takes = Lines

        async def write(self, records: Lines) -> None:
            await asyncio.to_thread(logging.getLogger("ccpipe.test").warning, "of %s", "a thread")

    handler = Collecting()
    logging.getLogger("ccpipe.test").addHandler(handler)
    try:
        await run_pipes({name: pipe_of(NullSource(), Logging()) for name in ("fritz", "alex")})
    finally:
        logging.getLogger("ccpipe.test").removeHandler(handler)
    assert sorted(set(lines)) == ["WARNING alex: of a thread", "WARNING fritz: of a thread"]


async def test_recipes_share_address_of_telemetry(unused_port: int) -> None:
    """Each metric is there once, with a sample of each recipe; an address may also be their own."""
    listen, pages = f"127.0.0.1:{unused_port}", []

    class Probe(Sink[Any]):
        takes = Lines

        async def write(self, records: Lines) -> None:
            pages.append(await asyncio.to_thread(page))

    def page() -> str:
        with urllib.request.urlopen(f"http://{listen}/metrics", timeout=20) as answer:
            return str(answer.read().decode())

    each = {
        "fritz": pipe_of(NullSource(lines=2), Probe(), listen=listen),
        "alex": pipe_of(NullSource(lines=3), NullSink(), listen=listen),
        "own": pipe_of(NullSource(lines=4), NullSink(), listen="127.0.0.1:0"),
    }
    await run_pipes(each)
    families = list(text_string_to_metric_families(pages[0]))
    names = [family.name for family in families]
    assert len(names) == len(set(names))
    (read,) = [family for family in families if family.name == "ccpipe_read_records"]
    assert {sample.labels["recipe"] for sample in read.samples} <= {"fritz", "alex"}
    of_fritz = [sample for sample in read.samples if sample.labels["recipe"] == "fritz"]
    assert [(sample.labels["component"], sample.value) for sample in of_fritz] == [
        ("NullSource", 2)
    ]
