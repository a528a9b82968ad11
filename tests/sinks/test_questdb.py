"""The recipe ``questdb.toml`` with a real QuestDB and the table of its page."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.command import ccpipe
from tests.paths import ROOT
from tests.servers.questdb import QuestDB

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

SECOND = 1740052800
PARTS = [
    "cpu_load,hostname={host},type=node value={second}.5",
    "mem_used,hostname={host},type=node value={second}i",
    *[f"cpu_user,hostname={{host}},type=hwthread,type-id={i} value=0.25" for i in range(6)],
    *[
        f"nv_util,hostname={{host}},type=accelerator,type-id=0000:0{i}:00.0 value=7"
        for i in range(4)
    ],
]
LINES = [
    part.format(host=f"n{host}", second=second) + f" {SECOND + second}000000123\n"
    for second in range(10)
    for host in range(50)
    for part in PARTS
]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QuestDB]:
    with QuestDB(tmp_path_factory.mktemp("questdb") / "root") as store:
        yield store


@pytest.fixture
def table(store: QuestDB) -> QuestDB:
    """Return the store with an empty table."""
    store.create_table()
    return store


def send(store: QuestDB, directory: Path, lines: list[str]) -> str:
    """Send lines through the recipe; return what was logged at the end."""
    text = (ROOT / "bridges/questdb.toml").read_text()
    recipe = directory / "questdb.toml"
    recipe.write_text(text.replace("http://127.0.0.1:9000", store.url))
    (directory / "in.lp").write_text("".join(lines))
    state = str(directory / "state")
    words = ("backfill", directory / "in.lp", "--from", "file", "--to", recipe)
    done = ccpipe(*words, XDG_STATE_HOME=state)
    assert done.code in (0, 65), done.err  # 65 with dead letters
    return done.out + done.err


async def until_stored(store: QuestDB, rows: int) -> None:
    await store.until_applied()
    assert store.query("SELECT count() FROM metrics") == [[rows]]


async def test_recipe_stores_file_once_when_sent_twice(table: QuestDB, tmp_path: Path) -> None:
    """All 6000 lines, of hardware threads and GPUs too, with their nanoseconds."""
    for _ in range(2):
        assert "0 dead letters" in await asyncio.to_thread(send, table, tmp_path, LINES)
        await until_stored(table, 6000)
    found = table.query(
        "SELECT name, type_id, value, timestamp FROM metrics WHERE hostname = 'n7' "
        "AND timestamp < '2025-02-20T12:00:01' AND (name = 'mem_used' OR type_id = '0000:03:00.0')"
    )
    assert sorted(found, key=str) == [
        ["mem_used", None, 0.0, "2025-02-20T12:00:00.000000123Z"],
        ["nv_util", "0000:03:00.0", 7.0, "2025-02-20T12:00:00.000000123Z"],
    ]


async def test_later_value_of_same_time_replaces_first(table: QuestDB, tmp_path: Path) -> None:
    """As InfluxDB does."""
    for value in (1, 2):
        line = f"m,hostname=n1,type=node value={value} {SECOND}\n"
        await asyncio.to_thread(send, table, tmp_path, [line])
    await until_stored(table, 1)
    assert table.query("SELECT value FROM metrics") == [[2.0]]


async def test_bad_line_costs_no_other(table: QuestDB, tmp_path: Path) -> None:
    """QuestDB stores none of a request with one."""
    bad = f"bad,hostname=n1,type=node,sub-type=x value=1 {SECOND}\n"
    logged = await asyncio.to_thread(send, table, tmp_path, [*LINES[:20], bad, *LINES[20:40]])
    assert "invalid column name: sub-type" in logged
    await until_stored(table, 40)


async def test_acknowledged_lines_survive_kill(table: QuestDB, tmp_path: Path) -> None:
    """SIGKILL right after the acknowledgement; a power failure is not tried."""
    await asyncio.to_thread(send, table, tmp_path, LINES)
    table.process.kill()
    table.process.wait()
    await asyncio.to_thread(table.start)
    await until_stored(table, 6000)
