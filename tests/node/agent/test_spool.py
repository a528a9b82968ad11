"""The spool: order, bounds and what a kill leaves."""

import contextlib
import multiprocessing
import os
import sqlite3
from pathlib import Path

import pytest

from ccpipe.bus.nats.outgoing import Outgoing
from ccpipe.errors import ConfigError, UnavailableError
from ccpipe.node.agent.spool import Dropped, Spool
from tests.sinks.conftest import full_disk


def messages(*numbers: int, size: int = 0, event: bool = False) -> list[tuple[Outgoing, bool]]:
    """Make messages of one line each, whose ids are numbers."""
    return [(Outgoing("s", b"x" * size + b"\n", str(number)), event) for number in numbers]


def held(spool: Spool) -> list[str]:
    """Return the ids of what it holds, in order."""
    return [each.message.id for each in spool.oldest(10_000)]


def opened(path: Path, size: int = 2**20, age: float = 3600) -> Spool:
    """Open a spool."""
    spool = Spool(path, size=size, age=age)
    spool.open()
    return spool


def test_messages_come_in_the_order_in_which_they_were_added(tmp_path: Path) -> None:
    """Whole, with their ids; removed they are gone; the file is for its owner only."""
    spool = opened(tmp_path / "new" / "spool.db")
    spool.append(messages(1, 2))
    spool.append(messages(3, size=5000))
    first = spool.oldest(2)
    assert [each.message.id for each in first] == ["1", "2"]
    spool.remove(first)
    (last,) = spool.oldest(10)
    assert last.message == Outgoing("s", b"x" * 5000 + b"\n", "3")
    assert (spool.messages, spool.bytes) == (1, 5001 + 2 + 200)
    spool.remove([last])
    assert (spool.messages, spool.bytes, held(spool)) == (0, 0, [])
    assert spool.path.stat().st_mode & 0o777 == 0o600
    spool.close()


def test_the_file_is_there_as_long_as_it_holds_something(tmp_path: Path) -> None:
    """Not before the first message, and not after the last one."""
    path = tmp_path / "spool.db"
    spool = opened(path)
    assert not path.exists()
    spool.append(messages(1))
    spool.close()
    assert path.exists()
    spool = opened(path)
    spool.remove(spool.oldest(1))
    spool.close()
    assert list(tmp_path.iterdir()) == []


def test_when_it_is_full_the_oldest_metrics_go(tmp_path: Path) -> None:
    """Events stay, whatever comes; what went is counted."""
    spool = opened(tmp_path / "spool.db", size=10_000)
    spool.append(messages(0, event=True))
    dropped = Dropped()
    for number in range(1, 100):
        dropped += spool.append(messages(number, size=800))
        assert spool.bytes <= 10_000
    found = held(spool)
    assert found[0] == "0"
    assert found[1:] == [str(number) for number in range(100 - len(found) + 1, 100)]
    assert dropped == Dropped(100 - len(found), 100 - len(found))
    spool.close()


def test_a_spool_full_of_events_refuses_more(tmp_path: Path) -> None:
    """They are never dropped; what is refused stays with whoever has it, and nothing is added."""
    spool = opened(tmp_path / "spool.db", size=3_000)
    spool.append(messages(1, size=500))
    spool.append(messages(2, size=1500, event=True))
    with pytest.raises(UnavailableError, match="events fill it"):
        spool.append(messages(3, size=1500, event=True))
    assert held(spool) == ["1", "2"]
    assert spool.append(messages(4, size=500)) == Dropped(1, 1)
    assert held(spool) == ["2", "4"]
    spool.close()


def test_metrics_that_are_too_old_go(tmp_path: Path) -> None:
    """Events do not."""
    spool = opened(tmp_path / "spool.db")
    spool.append(messages(1))
    spool.append(messages(2, event=True))
    spool.age = 0.0
    assert spool.drop_old() == Dropped(1, 1)
    assert held(spool) == ["2"]
    spool.close()


def _append_and_die(path: Path) -> None:
    spool = opened(path)
    spool.append(messages(1, 2, 3))
    os._exit(1)


def test_what_was_added_outlives_a_kill(tmp_path: Path) -> None:
    """With its order and its ids; counts are right again."""
    child = multiprocessing.get_context("spawn").Process(
        target=_append_and_die, args=(tmp_path / "spool.db",)
    )
    child.start()
    child.join(60)
    spool = opened(tmp_path / "spool.db")
    assert held(spool) == ["1", "2", "3"]
    assert (spool.messages, spool.bytes) == (3, 3 * 203)
    spool.close()


def test_a_full_disk_changes_nothing(tmp_path: Path) -> None:
    """The error names the file; with room it goes on."""
    spool = opened(tmp_path / "spool.db")
    spool.append(messages(1))
    with full_disk(8192), pytest.raises(UnavailableError, match=r"spool\.db"):
        spool.append(messages(2, size=100_000))
    assert (held(spool), spool.messages, spool.bytes) == (["1"], 1, 203)
    spool.append(messages(3, size=100_000))
    assert held(spool) == ["1", "3"]
    spool.close()


def test_a_damaged_file_is_set_aside(tmp_path: Path) -> None:
    """The publisher goes on with a new one."""
    path = tmp_path / "spool.db"
    path.write_bytes(b"this is no database, whatever its name says" * 100)
    spool = opened(path)
    spool.append(messages(1))
    assert held(spool) == ["1"]
    spool.close()
    assert (tmp_path / "spool.db.damaged").read_bytes().startswith(b"this is no database")


def test_what_can_be_read_of_a_damaged_file_is_kept(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """In its order and with its ids, found when it is opened or later; the rest is told."""
    path = tmp_path / "spool.db"
    written = [(Outgoing.of("s", b"%03d" % n * 1000 + b"\n"), n % 3 == 0) for n in range(300)]
    spool = opened(path)
    spool.append(written)
    spool.close()
    whole = path.read_bytes()
    for number in (0, 150, 299):
        begin = whole.index(b"%03d" % number * 1000) // 4096 * 4096
        path.write_bytes(whole[:begin] + b"\xaa" * 4096 + whole[begin + 4096 :])
        caplog.clear()
        spool = opened(path)
        with contextlib.suppress(UnavailableError):  # it may be found here
            spool.oldest(1000)
        ids = held(spool)
        assert ids == [each.id for each, _ in written if each.id in ids]
        assert 295 <= len(ids) < 300
        assert (spool.messages, len(spool.oldest(1000))) == (len(ids), len(ids))
        (record,) = caplog.records
        assert f"{len(ids)} messages were recovered, at most {300 - len(ids)}" in record.message
        spool.append(messages(1))
        assert held(spool)[-1] == "1"
        spool.close()


def test_a_file_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    """Another process has it, it is of another version, or there is no folder."""
    path = tmp_path / "spool.db"
    spool, other = opened(path), opened(path)
    spool.append(messages(1))
    with pytest.raises(ConfigError, match=r"spool\.db: another process uses it"):
        opened(path)
    with pytest.raises(UnavailableError, match=r"spool\.db: another process uses it"):
        other.append(messages(2))
    spool.close()
    with pytest.raises(UnavailableError, match="closed"):
        spool.append(messages(1))
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="file/spool"):
        opened(tmp_path / "file" / "spool.db")
    database = sqlite3.connect(path)
    database.execute("PRAGMA user_version = 9")
    database.close()
    with pytest.raises(ConfigError, match="version 9"):
        opened(path)


def test_the_file_shrinks_when_it_is_empty(tmp_path: Path) -> None:
    """A long night without a broker does not cost the disk forever."""
    spool = opened(tmp_path / "spool.db", size=2**23)
    spool.append(messages(*range(100), size=50_000))
    spool.remove(spool.oldest(100))
    spool.append(messages(100))
    spool.close()
    assert spool.path.stat().st_size < 100_000
