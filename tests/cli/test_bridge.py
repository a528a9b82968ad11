"""``ccpipe bridge``: a recipe run as operators run it."""

import asyncio
import contextlib
import json
import signal
from pathlib import Path

import nats
import pyarrow.dataset as ds
import pytest
from nats.aio.client import Client

from ccpipe.bus.nats.server import NatsServer
from ccpipe.formats.gridengine import Accounting, encode_classic
from ccpipe.formats.lineprotocol import encode
from ccpipe.message import event, metric
from tests.cli import command
from tests.cli.command import Ended, ended
from tests.conftest import eventually
from tests.paths import ROOT
from tests.servers.nats.daemon import accepts
from tests.servers.victoriametrics import VictoriaMetrics, sample
from tests.test_telemetry import get

NOW = 1_740_000_000
TAGS = {"cluster": "local", "hostname": "n1", "type": "node"}
RECIPE = """
[source]
use = "nats"
durable = "test"

[sink]
use = "parquet"
dir = "{dir}"

[batch]
max_wait = "200ms"
"""


async def start(*arguments: object, url: str, **environ: str) -> asyncio.subprocess.Process:
    return await command.start("bridge", *arguments, CCPIPE_BUS__SERVERS=url, **environ)


async def stop(process: asyncio.subprocess.Process) -> Ended:
    return await ended(process, signal.SIGTERM)


def lines(count: int, start: int = 0) -> list[bytes]:
    return [
        encode([metric("m", float(i), time=(NOW + i) * 10**9, tags=TAGS)])
        for i in range(start, start + count)
    ]


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    path = tmp_path / "recipe.toml"
    path.write_text(RECIPE.format(dir=tmp_path / "parquet"))
    return path


def stored(directory: Path) -> list[float]:
    files = list(directory.glob("parquet/**/*.parquet"))
    table = ds.dataset([str(file) for file in files]).to_table().sort_by("time") if files else None
    values: list[float] = table["value"].to_pylist() if table else []
    return values


async def test_bridge_stores_all_but_bad_lines(
    nats_server: NatsServer, recipe: Path, tmp_path: Path
) -> None:
    """997 are stored; three are in <cluster>.dead with reason, origin, line and offset."""
    payload = lines(1000)
    payload[10] = b"m,hostname=n1,type=node value=1.2.3 1740000010\n"
    payload[500] = b'm,hostname=n1,type=node event="no end 1740000500\n'
    payload[999] = b"m,hostname=,type=node value=1 1740000999\n"
    bridge = await start(recipe, url=nats_server.url)
    client = await nats.connect(nats_server.url)
    await _publish(client, "local.metrics", b"".join(payload))
    await eventually(lambda: len(stored(tmp_path)) >= 997)
    code, _, log = await stop(bridge)
    dead_letters = [await client.jetstream().get_msg("ccpipe-local-dead", i) for i in (1, 2, 3)]
    info = await client.jetstream().stream_info("ccpipe-local-dead")
    await client.close()
    assert code == 0
    assert "997 records read, 997 written, 3 dead letters" in log
    assert stored(tmp_path) == [float(i) for i in range(1000) if i not in (10, 500, 999)]
    assert info.state.messages == 3
    joined = b"".join(payload)
    for letter, number in zip(dead_letters, (10, 500, 999), strict=True):
        headers = letter.headers or {}
        assert letter.data == payload[number].rstrip(b"\n")
        assert headers["Ccpipe-Line"] == str(number + 1)
        assert headers["Ccpipe-Origin"] == "local.metrics"
        begin = joined.index(payload[number])
        assert begin <= int(headers["Ccpipe-Offset"]) <= begin + len(payload[number])
    assert [(m.headers or {})["Ccpipe-Reason"] for m in dead_letters] == [
        "the value is not a well-formed number",
        "the string does not end: its closing quote is missing",
        "the tag has no value",
    ]


async def _publish(client: Client, subject: str, payload: bytes) -> None:
    """Publish into the stream, as soon as the bridge has made it."""
    for _ in range(1200):
        try:
            await client.jetstream().publish(subject, payload)
        except nats.js.errors.NoStreamResponseError:
            await asyncio.sleep(0.05)
        else:
            return
    pytest.fail("the bridge never made the stream")


async def test_bridge_writes_and_acknowledges_batch_on_sigterm(
    nats_server: NatsServer, recipe: Path, tmp_path: Path
) -> None:
    """Even if the batch is neither full nor old."""
    bridge = await start(recipe, url=nats_server.url, CCPIPE_BATCH__MAX_WAIT="1h")
    client = await nats.connect(nats_server.url)
    await _publish(client, "local.metrics", b"".join(lines(10)))
    jetstream = client.jetstream()
    async with asyncio.timeout(60):
        while True:
            with contextlib.suppress(nats.js.errors.NotFoundError):  # not created yet
                if (await jetstream.consumer_info("ccpipe-local", "test")).num_ack_pending:
                    break
            await asyncio.sleep(0.05)
    code, _, _ = await stop(bridge)
    assert code == 0
    assert len(stored(tmp_path)) == 10
    assert (await jetstream.consumer_info("ccpipe-local", "test")).num_ack_pending == 0
    await client.close()


async def test_dry_run_prints_and_consumes_nothing(
    nats_server: NatsServer, recipe: Path, tmp_path: Path
) -> None:
    """It shows what would be written; a bridge started later gets everything."""
    real = await start(recipe, url=nats_server.url)
    client = await nats.connect(nats_server.url)
    await _publish(client, "local.metrics", lines(1)[0])
    await eventually(lambda: len(stored(tmp_path)) == 1)
    await stop(real)
    dry = await start(recipe, "--dry-run", url=nats_server.url)
    payload = encode([event("job", "stop_job", "{}", time=NOW * 10**9, tags=TAGS)])
    printed = await first_line(dry, client, "local.events.job", payload)
    code, _, _ = await stop(dry)
    await client.close()
    assert code == 0
    assert printed == payload
    assert len(stored(tmp_path)) == 1


async def first_line(
    process: asyncio.subprocess.Process, client: Client, subject: str, payload: bytes
) -> bytes:
    """Publish repeatedly until it has printed a line: it is unknown when it has subscribed."""
    assert process.stdout is not None
    reading = asyncio.create_task(process.stdout.readline())
    async with asyncio.timeout(60):
        while not reading.done():
            await client.publish(subject, payload)
            await asyncio.wait({reading}, timeout=0.05)
    return reading.result()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[source]\nuse='nats'\n[sink]\nuse='parqet'\ndir='x'\n", "did you mean 'parquet'"),
        ("[source]\nuse='nats'\ndurabel='x'\n[sink]\nuse='null'\n", "source"),
        ("[source\n", "not TOML"),
        ("[sorce]\n[sink]\nuse='null'\n", "unknown key 'sorce'; did you mean 'source'?"),
    ],
)
async def test_bridge_rejects_wrong_recipe_before_start(
    tmp_path: Path, text: str, expected: str
) -> None:
    """With the file and a suggestion; the exit code is EX_CONFIG."""
    path = tmp_path / "wrong.toml"
    path.write_text(text)
    process = await start(path, url="nats://127.0.0.1:1")
    got, _, log = await ended(process)
    assert got == 78
    assert expected in log
    assert "wrong.toml" in log
    assert "Traceback" not in log


async def test_bridge_serves_health_while_it_runs(
    nats_server: NatsServer, recipe: Path, unused_port: int
) -> None:
    """``/health``, ``/ready`` and ``/metrics``, if configured."""
    bridge = await start(
        recipe, url=nats_server.url, CCPIPE_TELEMETRY__LISTEN=f"127.0.0.1:{unused_port}"
    )
    await accepts(unused_port)
    for path in ("/health", "/ready", "/metrics"):
        answer = b""
        async with asyncio.timeout(60):
            while not answer.startswith(b"HTTP/1.0 200 "):
                reader, writer = await asyncio.open_connection("127.0.0.1", unused_port)
                writer.write(f"GET {path} HTTP/1.0\r\n\r\n".encode())
                answer = await reader.read()
                writer.close()
                await writer.wait_closed()
    await stop(bridge)
    assert b"ccpipe_queued_bytes" in answer


@pytest.mark.parametrize(
    ("source", "sink", "url"),
    [
        ("nats", "null", "nats://127.0.0.1:1"),
        ("mqtt", "null", "mqtt://127.0.0.1:1"),
        ("kafka", "null", "127.0.0.1:1"),
        ("http", "nats", "nats://127.0.0.1:1"),
    ],
)
async def test_bridge_is_not_ready_before_first_connection_to_broker(
    tmp_path: Path, unused_port: int, source: str, sink: str, url: str
) -> None:
    """Of its source or of its sink: with a wrong address it never becomes ready."""
    options = {
        "mqtt": 'broker = { url = "mqtt://127.0.0.1:1" }',
        "kafka": 'broker = { servers = ["127.0.0.1:1"] }\ntopics = ["t"]\ncodec = "line"',
        "http": 'listen = "127.0.0.1:0"',
    }
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(
        f'[source]\nuse = "{source}"\n{options.get(source, "")}\n[sink]\nuse = "{sink}"\n'
    )
    listen = f"127.0.0.1:{unused_port}"
    bridge = await start(recipe, url="nats://127.0.0.1:1", CCPIPE_TELEMETRY__LISTEN=listen)
    await accepts(unused_port)
    text = ""
    async with asyncio.timeout(60):
        while url not in text:  # it may name the broker of dead letters, too
            status, text = await asyncio.to_thread(get, unused_port, "/ready")
            assert status == 503
            await asyncio.sleep(0.05)
    assert text.startswith("not ready: not connected to ")
    bridge.kill()
    await bridge.communicate()


async def test_bridge_waits_for_broker_and_ends_on_sigterm(recipe: Path, unused_port: int) -> None:
    """It may start before its broker, and SIGTERM ends the wait."""
    bridge = await start(recipe, url=f"nats://127.0.0.1:{unused_port}")
    assert bridge.stderr is not None
    assert str(unused_port).encode() in await asyncio.wait_for(bridge.stderr.readline(), 60)
    code, _, _ = await stop(bridge)
    assert code == 0


async def test_victoriametrics_returns_published_metrics(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    """The shipped recipe writes metrics to the real store; events are left out, none is dead."""
    store = VictoriaMetrics(tmp_path / "store")
    store.start()
    sent = [
        metric("cpu_load", 1.5 + i, time=(NOW + i) * 10**9, tags={**TAGS, "hostname": f"n{i % 3}"})
        for i in range(300)
    ]
    payload = encode([*sent, event("job", "stop_job", "{}", time=NOW * 10**9, tags=TAGS)])
    recipe = ROOT / "bridges" / "victoriametrics.toml"
    bridge = await start(recipe, url=nats_server.url, CCPIPE_SINK__URL=store.url)
    client = await nats.connect(nats_server.url)
    await _publish(client, "local.metrics", payload)
    await client.close()
    await eventually(lambda: len(store.samples()) >= len(sent))
    code, _, log = await stop(bridge)
    kept = store.samples()
    store.stop()
    assert code == 0
    assert "301 records read, 300 written, 0 dead letters" in log
    assert kept == {sample(message) for message in sent}


def names(path: Path) -> list[str]:
    return sorted(str(file.relative_to(path)) for file in path.rglob("*"))


@pytest.mark.parametrize("path", sorted((ROOT / "bridges").glob("*.toml")), ids=lambda p: p.stem)
async def test_dry_run_works_with_every_recipe(
    path: Path, nats_server: NatsServer, tmp_path: Path
) -> None:
    """With any source and sink; it leaves no file or stream and sends no dead letter."""
    state = tmp_path / "state"
    state.mkdir()
    given = {
        "CCPIPE_SOURCE__STATE_FILE": str(state / "checkpoint"),
        "XDG_STATE_HOME": str(state),
        "TMPDIR": str(state),
    }
    if path.stem != "gridengine":
        del given["CCPIPE_SOURCE__STATE_FILE"]
    if path.stem in ("from-jobanalyzer", "slurm-hdf5"):
        (tmp_path / "input").mkdir()
        given["CCPIPE_SOURCE__DIR"] = str(tmp_path / "input")
    if path.stem == "load-files":
        (tmp_path / "corrected.lp").touch()
        given["CCPIPE_SOURCE__PATHS"] = str(tmp_path / "corrected.lp")
    process = await start(path, "--dry-run", "--for", "1s", url=nats_server.url, **given)
    code, _, log = await ended(process)
    client = await nats.connect(nats_server.url)
    streams = await client.jetstream().streams_info()
    await client.close()
    assert (code, streams, names(state)) == (0, [], [])
    assert log.splitlines()[-1].endswith(" 0 left out")


async def test_dry_run_prints_envelopes_as_json(nats_server: NatsServer, tmp_path: Path) -> None:
    """One object a line, as Sonar writes them."""
    text = (ROOT / "bridges" / "cc-to-sonar.toml").read_text()
    assert 'hold_timeout = "5s"' in text
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(text.replace('hold_timeout = "5s"', 'hold_timeout = "100ms"'))
    dry = await start(recipe, "--dry-run", url=nats_server.url)
    client = await nats.connect(nats_server.url)
    payload = encode([metric("cpu_load", 1.5, time=NOW * 10**9, tags=TAGS)])
    printed = await first_line(dry, client, "local.metrics", payload)
    await client.close()
    code, _, _ = await stop(dry)
    assert code == 0
    assert json.loads(printed)["data"]["attributes"]["node"] == "n1"


async def test_dry_run_starts_at_position_of_bridge_and_keeps_it(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    """It reads copies of the state files."""
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(
        f"""
        [source]
        use = "gridengine_accounting"
        paths = ["{tmp_path}/accounting"]
        state_file = "{tmp_path}/checkpoint"
        follow = false
        [[translate]]
        use = "gridengine_to_cc"
        state_file = "{tmp_path}/state"
        rerun_timeout = "0s"
        [sink]
        use = "null"
        """
    )
    jobs = [
        encode_classic(
            Accounting(
                job_number=number, owner="anna", hostname="n1", qname="all.q",
                submission_time=NOW * 10**9, start_time=NOW * 10**9, end_time=(NOW + 5) * 10**9,
            )
        )
        for number in (1, 2)
    ]  # fmt: skip
    (tmp_path / "accounting").write_bytes(jobs[0])
    real = await start(recipe, url=nats_server.url)
    assert (await ended(real))[0] == 0
    (tmp_path / "accounting").write_bytes(jobs[0] + jobs[1])
    before = {name: (tmp_path / name).read_bytes() for name in ("checkpoint", "state")}
    for _ in range(2):
        dry = await start(recipe, "--dry-run", url=nats_server.url)
        code, printed, log = await ended(dry)
        assert code == 0, log
        assert 'jobId\\":2' in printed.replace(" ", "")
        assert 'jobId\\":1,' not in printed.replace(" ", "")
    assert {name: (tmp_path / name).read_bytes() for name in before} == before


async def test_bridge_refuses_recipes_of_same_name(recipe: Path, tmp_path: Path) -> None:
    """Logs and metrics could not distinguish them; so the same recipe cannot run twice."""
    other = tmp_path / "other"
    other.mkdir()
    (other / recipe.name).write_text(recipe.read_text())
    code, _, log = await command.finished("bridge", recipe, other / recipe.name)
    assert code == 64
    assert f"{recipe} has the same name" in log


async def test_bridge_names_wrong_one_of_several_recipes(recipe: Path, tmp_path: Path) -> None:
    """Before any runs."""
    wrong = tmp_path / "wrong.toml"
    wrong.write_text("[source]\nuse='nats'\n[sink]\nuse='parquet'\n")
    code, _, log = await command.finished("bridge", recipe, wrong)
    assert code == 78
    assert log.startswith("ccpipe: wrong: ")


async def test_dry_run_of_several_recipes_prints_each(tmp_path: Path) -> None:
    """Each with copies of its own state files."""
    for name in ("fritz", "alex"):
        (tmp_path / f"{name}.lp").write_text(f"m,hostname={name},type=node value=1 {NOW}\n")
        (tmp_path / f"{name}.toml").write_text(
            f'[source]\nuse = "file"\npaths = ["{tmp_path}/{name}.lp"]\n[sink]\nuse = "null"\n'
        )
    each = tmp_path / "fritz.toml", tmp_path / "alex.toml"
    code, out, log = await command.finished("bridge", *each, "--dry-run")
    assert code == 0, log
    assert sorted(line.split(" ")[0] for line in out.splitlines()) == [
        "m,hostname=alex,type=node",
        "m,hostname=fritz,type=node",
    ]
    for name in ("fritz", "alex"):
        assert f"{name}: bridge {name}: 1 records read, 1 printed" in log
