"""Reading what is left of a damaged spool."""

import contextlib
import shutil
import sqlite3
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ccpipe.bus.nats.outgoing import Outgoing
from ccpipe.node.agent.damaged_spool import read_damaged, set_aside
from ccpipe.node.agent.spool import Spool

WRITTEN = [Outgoing.of("s", b"%d" % n * 1000 + b"\n") for n in range(40)]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Return a spool's file."""
    path = tmp_path_factory.mktemp("whole") / "spool.db"
    spool = Spool(path, size=2**20, age=3600)
    spool.open()
    spool.append([(each, True) for each in WRITTEN])
    spool.close()
    return path.read_bytes()


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(where=st.floats(0, 1), garbage=st.binary(min_size=1, max_size=9000), cut=st.booleans())
def test_only_messages_as_they_were_written_are_read(
    whole: bytes, tmp_path: Path, where: float, garbage: bytes, cut: bool
) -> None:
    """Whatever bytes are changed, and wherever the file ends: no message comes back as another."""
    begin = int(len(whole) * where)
    path = tmp_path / "damaged.db"
    path.write_bytes(whole[:begin] + garbage + (b"" if cut else whole[begin + len(garbage) :]))
    for row in read_damaged(path):
        if row is not None:
            number, *_, id_, subject, payload = row
            assert Outgoing(subject, payload, id_) == WRITTEN[number - 1]


def test_all_of_a_good_file_is_read_and_none_of_another(whole: bytes, tmp_path: Path) -> None:
    """The log is renamed with the file, whose latest messages it may hold."""
    first, path = tmp_path / "first.db", tmp_path / "spool.db"
    first.write_bytes(whole)
    with contextlib.closing(sqlite3.connect(first)) as spool:
        spool.execute("DELETE FROM message WHERE number = 7")
        spool.commit()
        for suffix in ("", "-wal", "-shm"):  # as a kill leaves them
            shutil.copy(f"{first}{suffix}", f"{path}{suffix}")
    aside = set_aside(path)
    assert not list(tmp_path.glob("spool.db-*"))
    rows = list(read_damaged(aside))
    assert [row is None for row in rows] == [number == 7 for number in range(1, 41)]
    (tmp_path / "text").write_bytes(b"no database" * 1000)
    assert list(read_damaged(tmp_path / "text")) == []
