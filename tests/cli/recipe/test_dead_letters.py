"""Where the dead letters of a bridge go: the broker where there is one, else a file."""

import asyncio
from pathlib import Path

import nats

from ccpipe.bus.nats.server import NatsServer
from ccpipe.formats import dead_letters
from ccpipe.formats.gridengine import Accounting, encode_classic
from tests.cli.command import Ended, ccpipe
from tests.conftest import eventually, free_port
from tests.servers.nats.daemon import nats_daemon

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
use = "accounting"
paths = ["{folder}/accounting"]
checkpoint = "{folder}/checkpoint"
once = true

[[translate]]
use = "accounting_jobs"
emit = ["records"]

[sink]
use = "{sink}"
"""


def bridge(folder: Path, sink: str, **environ: str) -> Ended:
    """Run a bridge over an accounting file whose second line is broken."""
    (folder / "accounting").write_bytes(GOOD[0] + BAD + GOOD[1])
    recipe = folder / "recipe.toml"
    recipe.write_text(RECIPE.format(folder=folder, sink=sink))
    environ["XDG_STATE_HOME"] = str(folder / "state")
    return ccpipe("bridge", recipe, stdin=b"", **environ)


async def letters(url: str) -> list[tuple[bytes, dict[str, str]]]:
    client = await nats.connect(url)
    jetstream = client.jetstream()
    count = (await jetstream.stream_info("ccpipe-local-dead")).state.messages
    found = [await jetstream.get_msg("ccpipe-local-dead", i + 1) for i in range(count)]
    await client.close()
    return [(letter.data or b"", dict(letter.headers or {})) for letter in found]


async def test_letters_of_a_file_go_to_the_broker_with_line_and_offset(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    """Neither source nor sink knows the broker; over a sink that does it is the same."""
    for sink in ("null", "nats"):
        (tmp_path / f"to-{sink}").mkdir()
        done = await asyncio.to_thread(
            bridge, tmp_path / f"to-{sink}", sink, CCPIPE_BUS__SERVERS=nats_server.url
        )
        assert done.code == 0
        assert "2 records read, 2 written, 1 dead letters" in done.err
        assert not (tmp_path / f"to-{sink}" / "state").exists()
    found = await letters(nats_server.url)
    assert [original for original, _ in found] == [BAD.rstrip()] * 2
    for (_, headers), sink in zip(found, ("null", "nats"), strict=True):
        assert headers["Ccpipe-Origin"] == str(tmp_path / f"to-{sink}" / "accounting")
        assert headers["Ccpipe-Line"] == "2"
        assert headers["Ccpipe-Offset"] == str(len(GOOD[0]))
        assert headers["Ccpipe-Reason"]


def test_without_a_broker_a_file_is_used_and_named(tmp_path: Path) -> None:
    """The log says where to look."""
    done = bridge(tmp_path, "null")
    file = tmp_path / "state" / "ccpipe" / "dead.lp"
    assert done.code == 0
    assert f"dead letters go to {file}" in done.err
    assert BAD in file.read_bytes()


async def test_a_broker_that_forbids_them_leaves_them_to_a_file(tmp_path: Path) -> None:
    """Nothing is lost because a bridge may not publish on the subject of dead letters."""
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


async def test_a_broker_that_is_not_there_is_waited_for(tmp_path: Path) -> None:
    """The letter is kept, and the file does not count as read, until the broker has it."""
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
        found = await letters(server.url)
    assert done.code == 0
    assert [original for original, _ in found] == [BAD.rstrip()]
