"""The spool: order and limits, and its state after kills, full disks and damage."""

import errno
import itertools
import multiprocessing
import os
import random
import re
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.bus.nats.publisher import Outgoing
from ccpipe.errors import UnavailableError
from ccpipe.node.agent import spool as spool_module
from ccpipe.node.agent.spool import (
    MAGIC,
    Dropped,
    Spool,
    decode_frames,
    encode_frames,
    move_database,
)
from tests.paths import TEST_DATA
from tests.sinks.conftest import full_disk


def messages(*numbers: int, size: int = 0, event: bool = False) -> list[tuple[Outgoing, bool]]:
    return [(Outgoing("s", b"x" * size + b"\n", str(number)), event) for number in numbers]


def stored_messages(spool: Spool) -> list[str]:
    return [each.message.id for each in spool.oldest(10_000)]


def open_spool(path: Path, size: int = 2**20, age: float = 3600) -> Spool:
    spool = Spool(path, size=size, age=age)
    spool.open()
    return spool


@pytest.fixture
def spool(tmp_path: Path) -> Iterator[Spool]:
    spool = open_spool(tmp_path / "spool")
    yield spool
    spool.close()


def names(path: Path) -> list[str]:
    return sorted(each.name for each in path.iterdir())


def test_spool_returns_messages_in_order_of_appending(tmp_path: Path) -> None:
    """With ids and headers; files are readable by the owner only, and removed in time."""
    spool = open_spool(tmp_path / "new" / "spool")
    spool.append(messages(1, 2))
    last = Outgoing("s", b"x" * 5000 + b"\n", "3", {"A": "b"})
    spool.append([(last, True)])
    assert names(spool.path) == ["000000000001-2-2.metrics", "000000000002-1-1.events"]
    assert (spool.messages, spool.bytes) == (3, 4096 + 8192)
    first = spool.oldest(1)
    assert [each.message.id for each in first] == ["1"]
    spool.remove(first)
    rest = spool.oldest(10)
    assert [each.message.id for each in rest] == ["2", "3"]
    assert rest[1].message == last
    spool.remove(rest[:1])
    assert names(spool.path) == ["000000000002-1-1.events"]
    assert (spool.messages, spool.bytes) == (1, 8192)
    assert (spool.path / names(spool.path)[0]).stat().st_mode & 0o777 == 0o600
    spool.remove(rest)
    assert (spool.messages, spool.bytes, stored_messages(spool), names(spool.path)) == (
        0,
        0,
        [],
        [],
    )
    spool.close()


def test_spool_keeps_order_when_metrics_and_events_alternate(tmp_path: Path) -> None:
    """They are in different files, which are read in the order of their numbers."""
    spool = open_spool(tmp_path / "spool")
    spool.append([*messages(1), *messages(2, event=True), *messages(3, 4), *messages(5)])
    spool.close()
    spool = open_spool(tmp_path / "spool")
    assert stored_messages(spool) == ["1", "2", "3", "4", "5"]
    assert [name.partition(".")[2] for name in names(spool.path)] == [
        "metrics",
        "events",
        "metrics",
    ]
    spool.close()


def test_spool_drops_oldest_metrics_when_full(tmp_path: Path) -> None:
    spool = open_spool(tmp_path / "spool", size=20_480)
    spool.append(messages(0, event=True))
    for number in range(1, 20):
        spool.append(messages(number, size=800))
        assert spool.bytes <= 20_480
    assert stored_messages(spool) == ["0", "16", "17", "18", "19"]
    assert spool.dropped == Dropped(15, 15)
    assert sum(path.stat().st_blocks * 512 for path in spool.path.iterdir()) <= spool.bytes
    spool.close()


def test_spool_refuses_messages_when_full_of_events(tmp_path: Path) -> None:
    """Events are never dropped; after a refusal nothing is added."""
    spool = open_spool(tmp_path / "spool", size=12_288)
    spool.append(messages(1, size=500))
    spool.append(messages(2, size=4500, event=True))
    with pytest.raises(UnavailableError, match="full of events"):
        spool.append([*messages(3), *messages(4, size=4500, event=True)])
    assert stored_messages(spool) == ["1", "2"]
    spool.append(messages(5, size=500))
    assert stored_messages(spool) == ["2", "5"]
    assert spool.dropped == Dropped(1, 1)
    spool.append(messages(6, size=50_000))  # larger than the spool itself
    assert stored_messages(spool) == ["2"]
    assert spool.dropped == Dropped(3, 3)
    spool.close()


def test_spool_drops_metrics_beyond_age(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not events; the age does not depend on the wall clock."""
    spool = open_spool(tmp_path / "spool", age=3600)
    spool.append(messages(1))
    spool.append(messages(2, event=True))
    real = time.time
    for days in (3, 365, -3650):
        monkeypatch.setattr(time, "time", lambda days=days: real() + 86400 * days)
        monkeypatch.setattr(time, "time_ns", lambda days=days: int((real() + 86400 * days) * 1e9))
        spool.drop_old()
        assert (stored_messages(spool), spool.dropped) == (["1", "2"], Dropped())
    for path in spool.path.iterdir():
        os.utime(path, (0, 0))
    spool.close()
    spool = open_spool(tmp_path / "spool", age=3600)
    spool.drop_old()
    assert stored_messages(spool) == ["1", "2"]
    spool.age = 0.0
    spool.drop_old()
    assert (stored_messages(spool), spool.dropped) == (["2"], Dropped(1, 1))
    spool.close()


def _append_until_killed(path: Path) -> None:
    spool = open_spool(path)
    spool.append(messages(1, 2, 3))
    os._exit(1)


def test_spool_survives_sigkill(tmp_path: Path) -> None:
    child = multiprocessing.get_context("spawn").Process(
        target=_append_until_killed, args=(tmp_path / "spool",)
    )
    child.start()
    child.join()
    spool = open_spool(tmp_path / "spool")
    assert (spool.messages, spool.bytes) == (3, 4096)
    assert stored_messages(spool) == ["1", "2", "3"]
    spool.append(messages(4))
    assert stored_messages(spool) == ["1", "2", "3", "4"]
    spool.close()


def test_spool_syncs_appended_messages(spool: Spool, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    real = os.fsync

    def fsync(descriptor: int) -> None:
        synced.append(Path(f"/proc/self/fd/{descriptor}").readlink().name)
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    spool.append([*messages(1), *messages(2, event=True)])
    assert synced == ["000000000001-1-1.metrics", "000000000002-1-1.events", "spool"]


def test_spool_is_unchanged_when_disk_is_full(spool: Spool) -> None:
    """The error names the directory, no file is left, and removing needs no space."""
    spool.append(messages(1))
    with full_disk(8192), pytest.raises(UnavailableError, match="spool: File too large"):
        spool.append([*messages(2), *messages(3, size=100_000, event=True)])
    assert (stored_messages(spool), spool.messages, spool.bytes) == (["1"], 1, 4096)
    assert len(names(spool.path)) == 1
    with full_disk(0):
        spool.remove(spool.oldest(1))
    assert names(spool.path) == []
    spool.append(messages(3, size=100_000))
    assert stored_messages(spool) == ["3"]


def test_spool_reports_why_it_is_unusable_and_recovers(tmp_path: Path) -> None:
    """Another process uses it, its path is a file, or a file has an invalid name."""
    path = tmp_path / "spool"
    spool = open_spool(path)
    spool.append(messages(1))
    other = Spool(path, size=2**20, age=3600)
    with pytest.raises(UnavailableError, match="spool: another process uses it"):
        other.open()
    with pytest.raises(UnavailableError, match="spool: another process uses it"):
        other.append(messages(2))
    spool.close()
    with pytest.raises(UnavailableError, match="closed"):
        spool.append(messages(1))
    other.append(messages(2))
    assert stored_messages(other) == ["1", "2"]
    other.close()
    (tmp_path / "file").touch()
    for name in ("file", "file/spool"):
        with pytest.raises(UnavailableError, match=name):
            open_spool(tmp_path / name)


def test_spool_skips_unreadable_file_until_retry(
    spool: Spool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Other files are read meanwhile; its messages are returned once it is readable."""
    spool.append(messages(1))
    spool.append(messages(2))
    monkeypatch.setattr(spool_module, "RETRY_SECONDS", 0.2)
    first = spool.path / names(spool.path)[0]
    content = first.read_bytes()
    first.unlink()
    first.mkdir()  # reading it fails, also for root
    assert stored_messages(spool) == ["2"]
    assert "cannot be read now: Is a directory" in caplog.text
    spool.remove(spool.oldest(1))
    assert (spool.messages, spool.is_waiting) == (1, False)
    first.rmdir()
    first.write_bytes(content)
    while not spool.is_waiting:
        time.sleep(0.01)
    assert stored_messages(spool) == ["1"]
    assert spool.lost == Dropped()


def test_spool_finds_files_of_disk_mounted_later(tmp_path: Path) -> None:
    """Nothing is overwritten, and messages on an unmounted disk do not count as lost."""
    path, away, other = tmp_path / "spool", tmp_path / "away", tmp_path / "other"
    spool = open_spool(path)
    spool.append(messages(1))
    path.rename(away)
    assert stored_messages(spool) == []
    with pytest.raises(UnavailableError, match="No such file"):
        spool.append(messages(2))
    path.mkdir()  # where it was mounted
    spool.append(messages(3))
    path.rename(other)
    away.rename(path)
    spool.append(messages(4))
    assert (spool.messages, spool.lost) == (3, Dropped())
    spool.close()
    spool = open_spool(path)
    assert stored_messages(spool) == ["1", "4"]
    spool.close()
    assert names(other) == ["000000000002-1-1.metrics"]


def test_spool_counts_file_deleted_by_others(
    spool: Spool, caplog: pytest.LogCaptureFixture
) -> None:
    spool.append(messages(1, 2, 3))
    (spool.path / names(spool.path)[0]).unlink()
    assert stored_messages(spool) == []
    assert (spool.messages, spool.bytes, spool.lost) == (0, 0, Dropped(3, 3))
    assert "was deleted by another program: 3 of its 3 messages are lost" in caplog.text


def test_spool_keeps_latest_damaged_file(tmp_path: Path) -> None:
    """For inspection; it does not count, and a new spool ignores it."""
    path = tmp_path / "spool"
    spool = open_spool(path)
    for number in range(3):
        spool.append(messages(number))
    for name in names(path)[:2]:
        (path / name).write_bytes(name.encode())
    assert stored_messages(spool) == ["2"]
    assert names(path) == ["000000000003-1-1.metrics", "damaged"]
    assert (path / "damaged").read_bytes() == b"000000000002-1-1.metrics"
    spool.close()
    spool = open_spool(path)
    assert (spool.messages, spool.bytes, stored_messages(spool)) == (1, 4096, ["2"])
    spool.close()


def test_spool_retries_failed_delete(spool: Spool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spool_module, "RETRY_SECONDS", 0.2)
    spool.append(messages(1))
    with monkeypatch.context() as patched:
        patched.setattr(Path, "unlink", read_only)
        spool.remove(spool.oldest(1))
    assert (spool.messages, spool.bytes, spool.is_waiting) == (0, 4096, False)
    while not spool.is_waiting:
        time.sleep(0.01)
    assert stored_messages(spool) == []
    assert (spool.bytes, spool.is_waiting, names(spool.path)) == (0, False, [])


def read_only(path: Path) -> None:
    raise OSError(errno.EROFS, os.strerror(errno.EROFS))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("whole") / "spool"
    spool = open_spool(path, size=2**24)
    numbers = iter(range(10**6))
    for count in (1, 2, 7, 30, 1, 3):
        for event in (False, True):
            spool.append(messages(*(next(numbers) for _ in range(count)), size=700, event=event))
    spool.close()
    return path


def damaged(path: Path, chance: random.Random) -> Iterator[str]:
    for file in chance.sample(sorted(path.iterdir()), chance.randint(1, 4)):
        content = bytearray(file.read_bytes())
        begin = chance.randrange(len(content))
        kind = chance.choice(("bits", "cut", "zeroes", "foreign", "garbage", "removed"))
        if kind == "bits":
            for _ in range(chance.randint(1, 3)):
                content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
        elif kind == "cut":
            del content[begin:]
        elif kind == "zeroes":
            begin -= begin % 512
            content[begin : begin + 4096] = bytes(len(content[begin : begin + 4096]))
        elif kind == "foreign":  # the content of another file there
            other = chance.choice(sorted(path.iterdir())).read_bytes()
            content[begin : begin + 4096] = other[begin : begin + 4096]
        elif kind == "garbage":
            content += chance.randbytes(chance.randint(1, 9000))
        file.write_bytes(content)
        if kind == "removed":
            content.clear()
            file.write_bytes(b"")
        yield kind


@pytest.mark.parametrize("seed", range(10))
def test_spool_counts_every_message_lost_by_damage(
    whole: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, seed: int
) -> None:
    """In 500 damaged spools each message is read as it was written, or counted and logged."""
    chance = random.Random(seed)
    total = Spool(whole, size=2**24, age=3600)
    total.open()
    written = {each.message.id: each.message for each in total.oldest(10**6)}
    total.close()
    for number in range(50):
        caplog.clear()
        path = tmp_path / str(number)
        shutil.copytree(whole, path)
        kinds = list(damaged(path, chance))
        spool = open_spool(path, size=2**24)
        assert spool.messages == len(written), kinds
        found = spool.oldest(10**6)
        ids = [each.message.id for each in found]
        assert ids == sorted(set(ids), key=int), kinds
        assert all(written[each.message.id] == each.message for each in found), kinds
        assert len(ids) + spool.lost.messages == len(written), kinds
        assert spool.lost.lines == spool.lost.messages, kinds
        logged = re.findall(r": (\d+) of its \d+ messages are lost", caplog.text)
        assert sum(map(int, logged)) == spool.lost.messages, kinds
        spool.remove(found)
        assert spool.messages == 0
        assert names(path) in ([], ["damaged"])
        spool.close()
        shutil.rmtree(path)


def fill(path: Path) -> None:
    with path.open("wb", buffering=0) as file:
        while True:
            file.write(b"x" * 4096)


def append_until_full(spool: Spool) -> None:
    for number in itertools.count():
        spool.append(messages(number, size=3000))


def test_spool_empties_on_full_disk(small_disk: Path) -> None:
    """Reading and removing need no space; freed space is used again."""
    spool = open_spool(small_disk / "spool")
    with pytest.raises(UnavailableError, match=os.strerror(errno.ENOSPC)):
        append_until_full(spool)
    with pytest.raises(OSError, match="No space"):
        fill(small_disk / "filler")
    appended = spool.messages
    assert appended > 5
    assert stored_messages(spool) == [str(number) for number in range(appended)]
    spool.remove(spool.oldest(1))
    spool.append(messages(appended, size=3000))
    spool.remove(spool.oldest(10_000))
    assert (spool.messages, names(spool.path)) == (0, [])
    spool.close()


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
outgoing = st.builds(
    Outgoing, texts, st.binary(max_size=200) | st.just(MAGIC), texts,
    st.dictionaries(texts, texts, max_size=2),
)  # fmt: skip
contents = st.lists(outgoing, max_size=6)
numbers = st.integers(1, 2**40)


@given(number=numbers, messages=contents)
def test_frames_decode_to_written_messages(number: int, messages: list[Outgoing]) -> None:
    content = encode_frames(number, messages)
    assert list(decode_frames(number, content)) == list(enumerate(messages))


@given(number=numbers, pieces=st.lists(st.binary(max_size=100) | st.just(MAGIC), max_size=20))
def test_frames_decode_any_bytes(number: int, pieces: list[bytes]) -> None:
    """Each decoded message is encoded in the bytes; nothing raises."""
    content = b"".join(pieces)
    for index, message in decode_frames(number, content):
        frame = encode_frames(number, [message] * (index + 1))
        assert frame[len(encode_frames(number, [message] * index)) :] in content


@given(
    messages=st.lists(outgoing, min_size=1, max_size=6),
    at=st.floats(0, 1, exclude_max=True),
    garbage=st.binary(min_size=1, max_size=300),
    cut=st.booleans(),
)
def test_frames_without_damage_are_decoded(
    messages: list[Outgoing], at: float, garbage: bytes, cut: bool
) -> None:
    """Each frame without a changed byte is decoded; no damaged one decodes to another message."""
    whole = encode_frames(7, messages)
    ends = [len(encode_frames(7, messages[: count + 1])) for count in range(len(messages))]
    begin = int(at * len(whole))
    end = len(whole) if cut else begin + len(garbage)
    content = whole[:begin] + garbage + whole[end:]
    found = list(decode_frames(7, content))
    assert [each for each in found if each not in list(enumerate(messages))] == []
    undamaged = {
        index
        for index, (first, last) in enumerate(zip([0, *ends], ends, strict=False))
        if last <= begin or first >= end
    }
    assert undamaged <= {index for index, _ in found}


def test_frames_of_another_file_are_ignored() -> None:
    """A block that the disk wrote to the wrong place is damage, although it is complete."""
    content = encode_frames(1, [Outgoing("s", b"x", "1")])
    assert list(decode_frames(2, content)) == []


def test_database_of_earlier_version_is_moved_in_order(spool: Spool, tmp_path: Path) -> None:
    """With the ids of its messages; then it is removed."""
    database = tmp_path / "spool.db"
    shutil.copy(TEST_DATA / "upgrade/spool.db", database)
    move_database(database, spool)
    payloads = [spooled.message.payload for spooled in spool.oldest(100)]
    assert len(payloads) == 17
    assert [Outgoing.of("fritz.metrics", payload).id for payload in payloads] == [
        spooled.message.id for spooled in spool.oldest(100)
    ]
    times = [int(payload.split()[-1]) for payload in payloads]
    assert times == sorted(times)
    assert not database.exists()
    move_database(database, spool)


def test_database_stays_where_it_cannot_be_read(spool: Spool, tmp_path: Path) -> None:
    database = tmp_path / "spool.db"
    database.write_bytes(b"no database" * 1000)
    with pytest.raises(UnavailableError, match=r"spool\.db: file is not a database"):
        move_database(database, spool)
    assert database.exists()
