"""Running a pipe for a command: totals in the log, telemetry, and where its dead letters go."""

import asyncio
import gc
import urllib.request
from pathlib import Path
from typing import Any, Self

import nats
import pytest

from ccpipe.bus.nats.server import NatsServer
from ccpipe.cli.recipe.pipe import GARBAGE_THRESHOLDS, Pipe, rare_garbage_collection, run_pipe
from ccpipe.errors import ConfigError
from ccpipe.formats import dead_letters
from ccpipe.formats.gridengine import Accounting, encode_classic
from ccpipe.formats.lineprotocol import Lines
from ccpipe.pipeline import Sink, Source
from ccpipe.sinks.null import NullSink
from ccpipe.sources.null import NullSource
from ccpipe.telemetry import Telemetry
from tests.cli.command import Ended, ccpipe
from tests.conftest import eventually, free_port
from tests.pipeline.parts import ListSink, ListSource, VirtualLoop, clock, made, virtual
from tests.servers.nats.daemon import nats_daemon


def pipe_of(
    source: Source[Any], sink: Sink[Any], *, name: str = "bridge", listen: str = ""
) -> Pipe:
    return Pipe(source=source, sink=sink, name=name, telemetry=Telemetry(), listen=listen)


async def test_pipe_logs_totals(caplog: pytest.LogCaptureFixture) -> None:
    """Also when it fails."""

    class Broken(Sink[Any]):
        takes = Lines

        async def write(self, records: Lines) -> None:
            raise ConfigError("no")

    with caplog.at_level("INFO"):
        await run_pipe(pipe_of(NullSource(batches=2, lines=3), NullSink(), name="bridge x"))
        with pytest.raises(ConfigError):
            await run_pipe(pipe_of(NullSource(), Broken(), name="bridge y"))
    texts = [record.getMessage() for record in caplog.records]
    assert "bridge x: 6 records read, 6 written, 0 dead letters" in texts
    assert any(text.startswith("bridge y: 1 records read, 0 written") for text in texts)


async def test_telemetry_is_served_while_pipe_runs(unused_port: int) -> None:
    """And the port is free again afterwards."""
    seen: list[int] = []

    class Probe(Sink[Any]):
        takes = Lines

        async def write(self, records: Lines) -> None:
            with urllib.request.urlopen(f"http://127.0.0.1:{unused_port}/health") as answer:
                seen.append(answer.status)

    for _ in range(2):
        await run_pipe(pipe_of(NullSource(), Probe(), listen=f"127.0.0.1:{unused_port}"))
    assert seen == [200, 200]


async def test_pipe_ends_after_given_time() -> None:
    """A source without end is stopped."""
    source = NullSource(batches=10**9, lines=1)
    await run_pipe(pipe_of(source, NullSink()), seconds=0.2)


class LateSource(ListSource):
    """Opens in a second, or keeps the process from everything else for as long."""

    def __init__(self, seconds: float, *, is_blocked: bool = False) -> None:
        super().__init__([list(made(number)) for number in range(5)], delays=[2, 2, 2, 2, 2])
        self.seconds, self.is_blocked = seconds, is_blocked

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        if self.is_blocked:
            assert isinstance(loop, VirtualLoop)
            loop.clock += self.seconds
        else:
            await asyncio.sleep(self.seconds)
        return await super().__aenter__()


@pytest.mark.parametrize("is_blocked", [False, True])
@virtual
async def test_time_of_pipe_begins_when_its_parts_are_open(*, is_blocked: bool) -> None:
    """On a loaded machine a bridge reads for as long as it was told, not what is left of it."""
    sink = ListSink()
    source = LateSource(20 if is_blocked else 4, is_blocked=is_blocked)
    await run_pipe(pipe_of(source, sink), seconds=5)
    assert len(sink.written) == 2


@virtual
async def test_parts_that_do_not_open_in_time_end_pipe() -> None:
    """A bridge whose broker is away ends after its time too."""
    await run_pipe(pipe_of(LateSource(600), ListSink()), seconds=5)
    assert clock() == pytest.approx(5)


def test_garbage_collection_is_rare_while_pipe_runs() -> None:
    """Objects that exist at the start are frozen; afterwards the settings are restored."""
    before = gc.get_threshold()
    with rare_garbage_collection():
        assert gc.get_threshold() == GARBAGE_THRESHOLDS
        assert gc.get_freeze_count() > 0
    assert gc.get_threshold() == before
    assert gc.get_freeze_count() == 0


GOOD = [
    encode_classic(
        Accounting(
            job_number=number,
            owner="anna",
            hostname="n1",
            qname="all.q",
            submission_time=1_795_170_700 * 10**9,
            start_time=1_795_170_750 * 10**9,
            end_time=1_795_170_755 * 10**9,
            usage={"rusage": {"ru_wallclock": 5}},
        )
    )
    for number in (1, 2)
]
BAD = b"all.q:n1:broken\n"
RECIPE = """
cluster = "local"

[source]
use = "gridengine_accounting"
paths = ["{directory}/accounting"]
state_file = "{directory}/checkpoint"
follow = false

[[translate]]
use = "gridengine_to_cc"
emit = ["records"]

[sink]
use = "{sink}"
"""


def bridge(directory: Path, sink: str, **environ: str) -> Ended:
    """Run a bridge over an accounting file whose second line is broken."""
    (directory / "accounting").write_bytes(GOOD[0] + BAD + GOOD[1])
    recipe = directory / "recipe.toml"
    recipe.write_text(RECIPE.format(directory=directory, sink=sink))
    environ["XDG_STATE_HOME"] = str(directory / "state")
    return ccpipe("bridge", recipe, stdin=b"", **environ)


async def stored_dead_letters(url: str) -> list[tuple[bytes, dict[str, str]]]:
    client = await nats.connect(url)
    jetstream = client.jetstream()
    count = (await jetstream.stream_info("ccpipe-local-dead")).state.messages
    found = [await jetstream.get_msg("ccpipe-local-dead", i + 1) for i in range(count)]
    await client.close()
    return [(letter.data or b"", dict(letter.headers or {})) for letter in found]


async def test_dead_letters_of_file_have_line_and_offset_on_broker(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    """Whether or not the sink uses a broker itself."""
    for sink in ("null", "nats"):
        (tmp_path / f"to-{sink}").mkdir()
        done = await asyncio.to_thread(
            bridge, tmp_path / f"to-{sink}", sink, CCPIPE_BUS__SERVERS=nats_server.url
        )
        assert done.code == 0
        assert "2 records read, 2 written, 1 dead letters" in done.err
        assert not (tmp_path / f"to-{sink}" / "state").exists()
    found = await stored_dead_letters(nats_server.url)
    assert [original for original, _ in found] == [BAD.rstrip()] * 2
    for (_, headers), sink in zip(found, ("null", "nats"), strict=True):
        assert headers["Ccpipe-Origin"] == str(tmp_path / f"to-{sink}" / "accounting")
        assert headers["Ccpipe-Line"] == "2"
        assert headers["Ccpipe-Offset"] == str(len(GOOD[0]))
        assert headers["Ccpipe-Reason"]


def test_dead_letters_go_to_file_without_broker(tmp_path: Path) -> None:
    """The log names the file."""
    done = bridge(tmp_path, "null")
    file = tmp_path / "state" / "ccpipe" / "dead.lp"
    assert done.code == 0
    assert f"dead letters go to {file}" in done.err
    assert BAD in file.read_bytes()


async def test_dead_letters_go_to_file_if_broker_denies_them(tmp_path: Path) -> None:
    """None is lost if a bridge may not publish on the subject of dead letters."""
    configuration = f"""
    jetstream {{ store_dir: "{tmp_path / "js"}" }}
    authorization {{ users: [ {{ user: u, password: p, permissions {{
      publish: ["$JS.API.>"], subscribe: ["_INBOX.>"] }} }} ] }}
    """
    async with nats_daemon(tmp_path, configuration) as port:
        url = f"nats://u:p@127.0.0.1:{port}"
        done = await asyncio.to_thread(bridge, tmp_path, "null", CCPIPE_BUS__SERVERS=url)
    assert done.code == 0, done.err
    kept = tmp_path / "state" / "ccpipe" / "dead.lp"
    assert f"dead letters go to {kept}" in done.err
    with kept.open("rb") as file:
        assert [letter.original for letter in dead_letters.read(file)] == [BAD.rstrip()]  # type: ignore[union-attr]


async def test_dead_letters_wait_for_broker(tmp_path: Path) -> None:
    """A dead letter is kept, and the file is not marked as read, until the broker has it."""
    (tmp_path / "nats").mkdir()
    server = NatsServer(tmp_path / "nats", port=free_port())
    waiting = asyncio.create_task(
        asyncio.to_thread(bridge, tmp_path, "null", CCPIPE_BUS__SERVERS=server.url)
    )
    await eventually((tmp_path / "checkpoint").exists)
    await asyncio.sleep(1)
    assert not waiting.done()
    assert b'"line":4' not in (tmp_path / "checkpoint").read_bytes()
    async with server:
        done = await waiting
        found = await stored_dead_letters(server.url)
    assert done.code == 0
    assert [original for original, _ in found] == [BAD.rstrip()]
