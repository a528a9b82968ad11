"""``ccpipe backfill``: what one store has, in another."""

import json
from collections import Counter
from pathlib import Path

from ccpipe.formats.lineprotocol import decode
from ccpipe.message import Message, Uint
from ccpipe.sinks.parquet import ParquetSink
from tests.cli.command import ccpipe
from tests.servers.postgres import Server
from tests.sinks.conftest import NOON, SECOND, metric
from tests.sinks.postgres.conftest import server  # noqa: F401 - a fixture

MINUTE = 60 * SECOND
MESSAGES = [
    metric(float(n), time=NOON + n * MINUTE + n, hostname=f"n{n % 3}", unit="GB") for n in range(9)
] + [
    metric(2**63 - 1, time=NOON + 1, **{"type-id": "7"}),
    metric(Uint(2**64 - 1), time=NOON + 2),
    metric(True, time=NOON + 3),
    Message("job", {"cluster": "fox", "function": "start_job"}, '{"a": 1}', NOON + 4, "event"),
]


def recipe(folder: Path) -> Path:
    """Write a recipe whose sink is a file."""
    path = folder / "to.toml"
    out = json.dumps(str(folder / "out.lp"))
    path.write_text(f'[source]\nuse = "nats"\n[sink]\nuse = "file"\npath = {out}\n')
    return path


def written(folder: Path) -> Counter[str]:
    """Return what the file has."""
    return Counter(map(repr, decode((folder / "out.lp").read_bytes())))


async def lake(folder: Path) -> Path:
    """Write the messages into Parquet files."""
    async with ParquetSink(dir=str(folder / "lake")) as sink:
        await sink.write(MESSAGES)
    return folder / "lake"


async def test_parquet(tmp_path: Path) -> None:
    """Every message is what it was: values of all types, nanoseconds and tags."""
    done = ccpipe("backfill", await lake(tmp_path), "--from", "parquet", "--to", recipe(tmp_path))
    assert done.code == 0, done.err
    assert f"{len(MESSAGES)} records read, {len(MESSAGES)} written" in done.err
    assert written(tmp_path) == Counter(map(repr, MESSAGES))


async def test_postgres(server: Server, tmp_path: Path) -> None:  # noqa: F811
    """A database gives the same."""
    database = await server.database()
    async with server.sink(database) as sink:
        await sink.write(MESSAGES)
    secret = tmp_path / "password"
    secret.write_text(server.secret.read_text())
    done = ccpipe(
        "backfill", server.url(database), "--from", "postgres", "--to", recipe(tmp_path),
        "--password-file", secret,
    )  # fmt: skip
    assert done.code == 0, done.err
    assert written(tmp_path) == Counter(map(repr, MESSAGES))


async def test_times_and_nodes(tmp_path: Path) -> None:
    """Only what is asked for is written; the end is not part of it."""
    folder = await lake(tmp_path)
    done = ccpipe(
        "backfill", folder, "--from", "parquet", "--to", recipe(tmp_path), "--node", "n[0-1]",
        "--start", "2025-02-20T12:01:00+00:00", "--end", "2025-02-20T12:04:00+00:00",
    )  # fmt: skip
    assert done.code == 0, done.err
    assert written(tmp_path) == Counter(map(repr, [MESSAGES[1], MESSAGES[3]]))


async def test_it_goes_on(tmp_path: Path) -> None:
    """What a checkpoint says is written is not written again, nor by another backfill."""
    folder, checkpoint = await lake(tmp_path), tmp_path / "checkpoint"
    arguments = ("--from", "parquet", "--to", recipe(tmp_path), "--checkpoint", checkpoint)
    assert ccpipe("backfill", folder, *arguments).code == 0
    noted = json.loads(checkpoint.read_text())
    assert noted["done"] == noted["end"]
    checkpoint.write_text(json.dumps(noted | {"done": NOON + 7 * MINUTE}))
    again = ccpipe("backfill", folder, *arguments)
    assert again.code == 0, again.err
    assert written(tmp_path) == Counter(map(repr, [*MESSAGES, *MESSAGES[7:9]]))
    other = ccpipe("backfill", folder, *arguments, "--node", "n1")
    assert (other.code, "another backfill" in other.err) == (78, True)


def test_nothing_there(tmp_path: Path) -> None:
    """A folder without files is missing input; what is no address is told."""
    arguments = ("--to", recipe(tmp_path))
    assert ccpipe("backfill", tmp_path / "no", "--from", "parquet", *arguments).code == 66
    assert ccpipe("backfill", "here", "--from", "postgres", *arguments).code == 78
