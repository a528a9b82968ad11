"""``ccpipe backfill``: data copied from one store to another."""

import asyncio
import gzip
import json
from collections import Counter
from pathlib import Path

import pytest

from ccpipe.formats.lineprotocol import decode, encode, to_lines
from ccpipe.message import Message, Uint
from ccpipe.sinks.file import FileSink
from ccpipe.sinks.parquet import ParquetSink
from ccpipe.sources.file import Format
from tests.cli.command import ccpipe, command, environment
from tests.conftest import eventually
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


def recipe(directory: Path) -> Path:
    path = directory / "to.toml"
    out = json.dumps(str(directory / "out.lp"))
    path.write_text(f'[source]\nuse = "nats"\n[sink]\nuse = "file"\npath = {out}\n')
    return path


def written(directory: Path) -> Counter[str]:
    return Counter(map(repr, decode((directory / "out.lp").read_bytes())))


async def parquet_files(directory: Path) -> Path:
    async with ParquetSink(dir=str(directory / "lake")) as sink:
        await sink.write(to_lines(MESSAGES))
    return directory / "lake"


async def test_backfill_reads_parquet(tmp_path: Path) -> None:
    """Every message is equal: values of all types, nanoseconds and tags."""
    done = ccpipe(
        "backfill", await parquet_files(tmp_path), "--from", "parquet", "--to", recipe(tmp_path)
    )
    assert done.code == 0, done.err
    assert f"{len(MESSAGES)} records read, {len(MESSAGES)} written" in done.err
    assert written(tmp_path) == Counter(map(repr, MESSAGES))


async def test_backfill_finds_recipe_by_name(tmp_path: Path) -> None:
    """As ``ccpipe bridge`` does; a misspelt name gets a suggestion."""
    source = await parquet_files(tmp_path)
    done = ccpipe("backfill", source, "--from", "parquet", "--to", "null")
    assert done.code == 0, done.err
    assert f"{len(MESSAGES)} records read" in done.err
    wrong = ccpipe("backfill", source, "--from", "parquet", "--to", "nul")
    assert (wrong.code, "did you mean 'null'?" in wrong.err) == (66, True)


async def test_backfill_reads_postgres(server: Server, tmp_path: Path) -> None:  # noqa: F811
    """A database gives the same messages."""
    database = await server.database()
    async with server.sink(database) as sink:
        await sink.write(to_lines(MESSAGES))
    secret = tmp_path / "password"
    secret.write_text(server.secret.read_text())
    done = ccpipe(
        "backfill", server.url(database), "--from", "postgres", "--to", recipe(tmp_path),
        "--database-password-file", secret,
    )  # fmt: skip
    assert done.code == 0, done.err
    assert written(tmp_path) == Counter(map(repr, MESSAGES))


async def test_backfill_selects_times_and_nodes(tmp_path: Path) -> None:
    """The end is exclusive."""
    directory = await parquet_files(tmp_path)
    done = ccpipe(
        "backfill", directory, "--from", "parquet", "--to", recipe(tmp_path), "--node", "n[0-1]",
        "--since", "2025-02-20T12:01:00+00:00", "--until", "2025-02-20T12:04:00+00:00",
    )  # fmt: skip
    assert done.code == 0, done.err
    assert written(tmp_path) == Counter(map(repr, [MESSAGES[1], MESSAGES[3]]))


async def test_backfill_continues_from_checkpoint(tmp_path: Path) -> None:
    """Data recorded there is not written again, nor by another backfill."""
    directory, checkpoint = await parquet_files(tmp_path), tmp_path / "checkpoint"
    arguments = ("--from", "parquet", "--to", recipe(tmp_path), "--checkpoint", checkpoint)
    assert ccpipe("backfill", directory, *arguments).code == 0
    noted = json.loads(checkpoint.read_text())
    assert noted["done"] == noted["end"]
    checkpoint.write_text(json.dumps(noted | {"done": NOON + 7 * MINUTE}))
    again = ccpipe("backfill", directory, *arguments)
    assert again.code == 0, again.err
    assert written(tmp_path) == Counter(map(repr, [*MESSAGES, *MESSAGES[7:9]]))
    other = ccpipe("backfill", directory, *arguments, "--node", "n1")
    assert (other.code, "another backfill" in other.err) == (78, True)


async def test_backfill_continues_while_bridge_writes(tmp_path: Path) -> None:
    """Messages that arrived since are written by the same backfill."""
    directory, checkpoint = await parquet_files(tmp_path), tmp_path / "checkpoint"
    arguments = ("--from", "parquet", "--to", recipe(tmp_path), "--checkpoint", checkpoint)
    assert ccpipe("backfill", directory, *arguments).code == 0
    later = metric(9.0, time=NOON + 60 * MINUTE)
    async with ParquetSink(dir=str(directory)) as sink:
        await sink.write(to_lines([later]))
    again = ccpipe("backfill", directory, *arguments)
    assert again.code == 0, again.err
    assert written(tmp_path) == Counter(map(repr, [*MESSAGES, later]))


def files(directory: Path) -> list[Path]:
    paths = [directory / "a.lp.gz", directory / "b.lp"]
    paths[0].write_bytes(gzip.compress(encode(MESSAGES[:5], precision="ns")))
    paths[1].write_bytes(encode(MESSAGES[5:], precision="ns"))
    return paths


def test_backfill_reads_line_files(tmp_path: Path) -> None:
    """Every message is equal; an invalid line becomes a dead letter with its position."""
    paths = files(tmp_path)
    paths[1].write_bytes(b"no line\n" + paths[1].read_bytes())
    arguments = (*paths, "--from", "file", "--to", recipe(tmp_path))
    done = ccpipe("backfill", *arguments, XDG_STATE_HOME=str(tmp_path))
    assert done.code == 65, done.err
    assert "1 line not written, but kept as dead letter" in done.err
    assert f"{len(MESSAGES)} written" in done.err
    assert f"dead letter from {paths[1]} line 1, offset " in done.err
    assert written(tmp_path) == Counter(map(repr, MESSAGES))


@pytest.mark.parametrize("form", ["json", "csv"])
async def test_backfill_reads_output_of_file_sink(tmp_path: Path, form: Format) -> None:
    """JSON lines and CSV; the type of a small unsigned integer is lost."""
    messages = [*MESSAGES, Message("log", {"a": "x y"}, 'two\nlines, "quoted"', None, "log")]
    name = "a.csv" if form == "csv" else "a.jsonl"
    async with FileSink(path=str(tmp_path / name), format=form) as sink:
        await sink.write(to_lines(messages))
    content = (tmp_path / name).read_bytes()
    (tmp_path / f"{name}.gz").write_bytes(gzip.compress(content))
    (tmp_path / "a.txt").write_bytes(content + b"2025-02-30,no row\n")
    arguments = ("--from", "file", "--to", recipe(tmp_path))
    done = ccpipe("backfill", tmp_path / f"{name}.gz", *arguments)
    assert done.code == 0, done.err
    assert written(tmp_path) == Counter(map(repr, messages))
    checkpoint = tmp_path / "checkpoint"
    again = ccpipe(
        "backfill", tmp_path / "a.txt", "--from", form, "--to", recipe(tmp_path),
        "--node", "n[0-1]", "--since", "2025-02-20T12:01:00+00:00", "--checkpoint", checkpoint,
        XDG_STATE_HOME=str(tmp_path),
    )  # fmt: skip
    assert again.code == 65, again.err
    line = 1 + content.count(b"\n")
    assert f"dead letter from {tmp_path / 'a.txt'} line {line}, offset {len(content)}" in again.err
    chosen = [m for m in MESSAGES[1:9] if m.tags["hostname"] in ("n0", "n1")]
    assert written(tmp_path) == Counter(map(repr, [*messages, *chosen]))
    assert noted(checkpoint) == len(messages) + 1


def test_dry_run_of_backfill_prints_lines(tmp_path: Path) -> None:
    """Nothing is written, neither data nor dead letters nor progress."""
    paths = files(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    (tmp_path / "bad.lp").write_bytes(b"broken\n")
    made = recipe(tmp_path)
    done = ccpipe(
        "backfill", *paths, tmp_path / "bad.lp", "--from", "file", "--to", made, "--dry-run",
        "--checkpoint", tmp_path / "checkpoint", XDG_STATE_HOME=str(tmp_path / "state"),
    )  # fmt: skip
    assert (done.code, done.err.splitlines()[-1]) == (65, "ccpipe: 1 line not printed")
    assert Counter(map(repr, decode(done.out.encode()))) == Counter(map(repr, MESSAGES))
    assert sorted({*tmp_path.rglob("*")} - {tmp_path / "bad.lp", made}) == before


def test_backfill_selects_times_and_nodes_of_files(tmp_path: Path) -> None:
    """A line without a timestamp is in no range."""
    paths = files(tmp_path)
    (tmp_path / "c.lp").write_bytes(b"m,hostname=n1 value=1\n")
    done = ccpipe(
        "backfill", *paths, tmp_path / "c.lp", "--from", "file", "--to", recipe(tmp_path),
        "--node", "n[0-1]",
        "--since", "2025-02-20T12:01:00+00:00", "--until", "2025-02-20T12:04:00+00:00",
    )  # fmt: skip
    assert done.code == 0, done.err
    assert written(tmp_path) == Counter(map(repr, [MESSAGES[1], MESSAGES[3]]))


@pytest.mark.parametrize("name", ["out.lp", "./sub/../out.lp", "link.lp", "hard.lp"])
def test_backfill_rejects_file_written_by_sink(tmp_path: Path, name: str) -> None:
    """It would be read forever, under any name."""
    out = tmp_path / "out.lp"
    out.write_bytes(encode(MESSAGES, precision="ns"))
    (tmp_path / "sub").mkdir()
    (tmp_path / "link.lp").symlink_to(out)
    (tmp_path / "hard.lp").hardlink_to(out)
    before = out.read_bytes()
    given = f"{tmp_path}/{name}"
    done = ccpipe("backfill", given, "--from", "file", "--to", recipe(tmp_path))
    assert done.code == 78
    assert f"sink: it would write to {given}, which is read" in done.err
    assert out.read_bytes() == before


async def test_backfill_rejects_store_written_by_sink(tmp_path: Path) -> None:
    """All rows would be duplicated."""
    directory = await parquet_files(tmp_path)
    to = tmp_path / "to.toml"
    to.write_text(f'[source]\nuse = "nats"\n[sink]\nuse = "parquet"\ndir = "{directory}"\n')
    done = ccpipe("backfill", directory, "--from", "parquet", "--to", to)
    assert (done.code, "which is read" in done.err) == (78, True)
    url = "postgresql://127.0.0.1:1/db"
    to.write_text(f'[source]\nuse = "nats"\n[sink]\nuse = "postgres"\nurl = "{url}"\n')
    done = ccpipe("backfill", url, "--from", "postgres", "--to", to)
    assert (done.code, "which is read" in done.err) == (78, True)


async def test_backfill_of_files_continues_after_kill(tmp_path: Path) -> None:
    """A rate limit makes it slow enough; the next run writes the rest, and few lines again."""
    total = 12_000
    paths = [tmp_path / "a.lp", tmp_path / "b.lp.gz"]
    lines = [b"m,hostname=n1 value=%d %d\n" % (n, NOON // SECOND + n) for n in range(total)]
    paths[0].write_bytes(b"".join(lines[: total // 2]))
    paths[1].write_bytes(gzip.compress(b"".join(lines[total // 2 :])))
    checkpoint = tmp_path / "checkpoint"
    arguments = (*paths, "--from", "file", "--to", recipe(tmp_path), "--checkpoint", checkpoint)
    first = await asyncio.create_subprocess_exec(
        *command("backfill", *arguments, "--rate", 2000), env=environment()
    )
    try:
        await eventually(lambda: checkpoint.exists() and noted(checkpoint) > 0)
    finally:
        first.kill()
        await first.wait()
    done = noted(checkpoint)
    assert 0 < done < total  # the rate held it back
    before = sum(written(tmp_path).values())
    again = ccpipe("backfill", *arguments)
    assert again.code == 0, again.err
    found = written(tmp_path)
    assert len(found) == total
    assert sum(found.values()) <= total + before - done + 4096  # at most one block more
    assert noted(checkpoint) == total
    assert ccpipe("backfill", *arguments).code == 0
    assert written(tmp_path) == found
    other = ccpipe("backfill", *arguments[1:])
    assert (other.code, "another backfill" in other.err) == (78, True)


def noted(checkpoint: Path) -> int:
    return int(json.loads(checkpoint.read_text())["done"])


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("no.lp", "--from", "file"), 66),
        (("a", "b", "--from", "parquet"), 64),
        (("--from", "file"), 64),
        (("a.lp", "--from", "file", "--rate", "-1"), 64),
    ],
)
def test_backfill_rejects_wrong_arguments(
    tmp_path: Path, arguments: tuple[str, ...], code: int
) -> None:
    """Before anything starts."""
    assert ccpipe("backfill", *arguments, "--to", recipe(tmp_path)).code == code


def test_backfill_reports_missing_input(tmp_path: Path) -> None:
    """A directory without files, a bad address and an unreachable server are named."""
    arguments = ("--to", recipe(tmp_path))
    assert ccpipe("backfill", tmp_path / "no", "--from", "parquet", *arguments).code == 66
    assert ccpipe("backfill", "here", "--from", "postgres", *arguments).code == 78
    down = ccpipe("backfill", "postgresql://127.0.0.1:1/x", "--from", "postgres", *arguments)
    assert (down.code, down.err) == (
        69,
        "ccpipe: PostgreSQL at 127.0.0.1:1/x: Connection refused\n",
    )
