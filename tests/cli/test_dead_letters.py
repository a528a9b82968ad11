"""``ccpipe dead-letters``: dead letters on the bus and in files are listed and replayed once."""

import asyncio
import json
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ccpipe.bus.nats.connection import Connection
from ccpipe.bus.nats.dead_letters import NatsDeadLetterSink
from ccpipe.bus.nats.server import NatsServer
from ccpipe.cli.dead_letters import FileDeadLetters, Filter
from ccpipe.config import Site
from ccpipe.errors import CreateError, MissingInputError
from ccpipe.formats import dead_letters
from ccpipe.formats.dead_letters import StoredDeadLetter
from ccpipe.formats.sonar import Envelope, ErrorObject, MetadataObject, encode
from ccpipe.pipeline import DeadLetter
from ccpipe.sinks.dead_letter_file import DeadLetterFile
from ccpipe.telemetry import Telemetry
from tests.cli.command import Ended, ccpipe, on_terminal
from tests.servers.nats.stored import stored

LINE = b"m,cluster=fox.test,hostname=n1,type=node value=%d.0 1740000000"
GOOD = [DeadLetter(LINE % i, "no such table", "fox%2Etest.metrics.n1") for i in range(3)]
BAD = DeadLetter(b"\x1b[31mbroken", "not a line", "fox%2Etest.metrics", 4, 17)
TIMELESS = DeadLetter(b"m,cluster=fox.test,hostname=n1,type=node value=7.0", "late", "load")
ENVELOPE = DeadLetter(
    encode(
        Envelope(
            MetadataObject(producer="ccpipe", version="1"),
            errors=(
                ErrorObject(time="2025-02-20T06:05:51Z", detail="x", cluster="fox.test", node="n"),
            ),
        )
    ),
    "not delivered",
    "sonar",
)


async def write(site: Site, dead_letters: list[DeadLetter]) -> None:
    async with Connection(site.bus, name="test", telemetry=Telemetry()) as bus:
        await NatsDeadLetterSink(bus, site).write(dead_letters)


async def dead(site: Site, *arguments: object) -> Ended:
    server = site.bus.servers[0]
    given = (*arguments, "--server", server, "--cluster", site.cluster)
    return await asyncio.to_thread(ccpipe, "dead-letters", *given)


async def test_dead_letters_of_bus_are_listed_and_shown(site: Site) -> None:
    """With reason, origin and excerpt; control characters are escaped; filters select."""
    await write(site, [*GOOD, BAD])
    listed = await dead(site, "list")
    assert listed.code == 0
    assert [row.split()[0] for row in listed.out.splitlines()] == ["ID", "1", "2", "3", "4"]
    assert r"\x1b[31mbroken" in listed.out
    assert listed.err.endswith("4 dead letters\n")
    rows = (await dead(site, "list", "--origin", "metrics.n?", "--count", 2, "-o", "json")).out
    assert [json.loads(row)["original"].encode() for row in rows.splitlines()] == [
        dead_letter.original for dead_letter in GOOD[:2]
    ]
    only = json.loads((await dead(site, "list", "--reason", "a line", "-o", "json")).out)
    assert (only["line"], only["offset"], only["reason"]) == (4, 17, "not a line")
    shown = await dead(site, "show", "--id", 2, "--id", 4)
    assert shown.out.encode() == GOOD[1].original + b"\n" + BAD.original + b"\n"
    assert "4: fox%2Etest.metrics: not a line" in shown.err
    terminal = await asyncio.to_thread(
        on_terminal,
        "dead-letters",
        "show",
        "--server",
        site.bus.servers[0],
        "--cluster",
        site.cluster,
    )
    assert r"\x1b[31mbroken" in terminal.out
    assert "\x1b" not in terminal.out


async def test_list_is_empty_without_dead_letters(site: Site) -> None:
    """Also if the stream does not exist yet."""
    listed = await dead(site, "list")
    assert (listed.code, listed.out, listed.err) == (0, "", "0 dead letters\n")


async def test_dead_letters_of_bus_are_replayed_once(site: Site, nats_server: NatsServer) -> None:
    """They go to their old subjects and are deleted; those still invalid are kept."""
    await write(site, [*GOOD, BAD])
    done = await dead(site, "replay")
    assert done.code == 65
    assert "4: " in done.err
    assert "3 dead letters replayed, 1 still invalid" in done.err
    assert await stored(nats_server) == [
        (dead_letter.origin, dead_letter.original + b"\n") for dead_letter in GOOD
    ]
    again = await dead(site, "replay")
    assert "0 dead letters replayed, 1 still invalid" in again.err
    assert len(await stored(nats_server)) == 3


async def test_dead_letters_of_file_are_replayed_once(
    site: Site, nats_server: NatsServer, tmp_path: Path
) -> None:
    """Resumed after a kill or run again, the command sends only the remaining ones."""
    path = tmp_path / "dead.lp"
    sink = DeadLetterFile(path)
    await sink.write([*GOOD, TIMELESS, ENVELOPE])
    first = await dead(site, "replay", path, "--count", 2)
    assert first.code == 0
    assert first.err.endswith("2 dead letters replayed, 0 still invalid\n")
    await sink.write([DeadLetter(LINE % 9, "later", "load")])
    assert "4 dead letters replayed" in (await dead(site, "replay", path)).err
    done = await dead(site, "replay", path)
    assert done.code == 0
    assert "0 dead letters replayed, 0 still invalid\n6 replayed before\n" in done.err
    found = await stored(nats_server)
    assert [payload for _, payload in found][:3] == [
        dead_letter.original + b"\n" for dead_letter in GOOD
    ]
    subjects = [subject for subject, _ in found]
    assert subjects[3:] == ["fox%2Etest.metrics", "fox%2Etest.sonar.error", "fox%2Etest.metrics"]
    assert found[3][1].startswith(TIMELESS.original + b" ")  # the time at which it was kept
    listed = await dead(site, "list", path)
    assert listed.err == "0 dead letters, 6 replayed before\n"
    assert (tmp_path / "dead.lp.replayed").stat().st_mode & 0o777 == 0o600


async def test_truncated_dead_letter_is_reported_and_others_replayed(
    site: Site, nats_server: NatsServer, tmp_path: Path
) -> None:
    """It is never replayed as another value."""
    path = tmp_path / "dead.lp"
    await DeadLetterFile(path).write(GOOD[:1])
    path.write_bytes(path.read_bytes()[:-20])
    await DeadLetterFile(path).write(GOOD[1:])
    content = path.read_bytes()
    done = await dead(site, "replay", path)
    assert done.code == 65
    assert "at byte 0: truncated or edited" in done.err
    assert await stored(nats_server) == [
        (dead_letter.origin, dead_letter.original + b"\n") for dead_letter in GOOD[1:]
    ]
    assert path.read_bytes() == content


async def test_replay_dry_run_prints_and_changes_nothing(site: Site, tmp_path: Path) -> None:
    """Subjects and payloads go to stdout."""
    path = tmp_path / "dead.lp"
    await DeadLetterFile(path).write(GOOD[:1])
    done = await dead(site, "replay", path, "--dry-run")
    assert done.out.encode() == b"fox%2Etest.metrics.n1 " + GOOD[0].original + b"\n"
    assert not (tmp_path / "dead.lp.replayed").exists()


async def test_shortened_dead_letter_is_not_replayed(site: Site) -> None:
    """Its stored beginning is not what was sent."""
    await write(site, [DeadLetter(b"x" * 2**20, "too long", "fox%2Etest.metrics")])
    done = await dead(site, "replay")
    assert done.code == 65
    assert "of 1048576 bytes were kept" in done.err


def test_replay_rejects_count_of_zero(tmp_path: Path) -> None:
    """It would do nothing and seem to have worked."""
    (tmp_path / "some.lp").touch()
    assert ccpipe("dead-letters", "list", "--count", 0, tmp_path / "some.lp").code == 64


DEAD_LETTERS = [
    StoredDeadLetter("1", 5, "no such table", b"a", "fox.metrics.n1"),
    StoredDeadLetter("2", 6, "not a line", b"b", "fox.metrics.n2"),
    StoredDeadLetter("3", 7, "not a line", b"c", "fox.sonar.job"),
]


async def dead_letter_stream() -> AsyncIterator[StoredDeadLetter]:
    for dead_letter in DEAD_LETTERS:
        yield dead_letter


@pytest.mark.parametrize(
    ("chosen", "ids"),
    [
        (Filter(), ["1", "2", "3"]),
        (Filter(id=["3", "1"]), ["1", "3"]),
        (Filter(reason="a line"), ["2", "3"]),
        (Filter(origin="metrics.n?"), ["1", "2"]),
        (Filter(reason="a line", origin="metrics"), ["2"]),
        (Filter(count=2), ["1", "2"]),
        (Filter(reason="a line", count=1), ["2"]),
    ],
)
async def test_all_filters_must_match_and_count_applies_to_matches(
    chosen: Filter, ids: list[str]
) -> None:
    """A text anywhere in reason or origin, or a shell pattern for a part of it."""
    assert [dead_letter.id async for dead_letter in chosen.apply(dead_letter_stream())] == ids


def written(path: Path) -> Path:
    path.write_bytes(dead_letters.encode(b"a", "no", time=1))
    return path


def test_unreadable_journal_is_missing_input(tmp_path: Path) -> None:
    """Without it, dead letters would be replayed twice."""
    path = written(tmp_path / "dead.lp")
    (tmp_path / "dead.lp.replayed").mkdir()
    with pytest.raises(MissingInputError, match="replayed"):
        FileDeadLetters(path)


async def test_unwritable_journal_is_reported(tmp_path: Path) -> None:
    """Like any file that a command cannot write."""
    path = written(tmp_path / "dead.lp")
    kept = FileDeadLetters(path)
    [dead_letter] = [dead_letter async for dead_letter in kept.read()]
    (tmp_path / "dead.lp.replayed").mkdir()
    with pytest.raises(CreateError, match="replayed: Is a directory"):
        await kept.remove([dead_letter])
    kept.close()


def test_dead_letters_are_read_from_regular_file_only(tmp_path: Path) -> None:
    """Positions in it are their IDs; a pipe or a device would never end."""
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero"), tmp_path):
        with pytest.raises(MissingInputError, match="not a regular file"):
            FileDeadLetters(path)


@pytest.mark.parametrize(
    "content", [b"[source]\nuse = 'nats'\n", b"m,hostname=a value=1 5\n", b"\0\n"]
)
def test_file_of_something_else_is_not_called_damaged(tmp_path: Path, content: bytes) -> None:
    """Exit code 65; an empty file has no dead letters, and one that is cut still has others."""
    path = tmp_path / "a.lp"
    path.write_bytes(content)
    shown = ccpipe("dead-letters", "list", path)
    assert shown == Ended(65, "", f"ccpipe: {path}: not a file of dead letters\n")
    path.write_bytes(content + dead_letters.encode(b"a", "no", time=1))
    shown = ccpipe("dead-letters", "list", path)
    assert "1 dead letter\nccpipe: 1 damaged dead letter" in shown.err
    path.write_bytes(b"")
    assert ccpipe("dead-letters", "list", path) == Ended(0, "", "0 dead letters\n")
