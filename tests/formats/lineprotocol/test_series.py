"""The series table and results per series: one code per series, bounded memory."""

import gc
import threading
import weakref
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.errors import EncodeError
from ccpipe.formats.lineprotocol import Lines, Series, SeriesTable, to_lines
from ccpipe.formats.lineprotocol import series as series_module
from ccpipe.formats.lineprotocol.decoder import decode_compiled, decode_in_python
from ccpipe.formats.lineprotocol.grammar import INFLUX
from ccpipe.formats.lineprotocol.kernel import KERNEL
from ccpipe.formats.lineprotocol.series import (
    MIN_BYTES,
    DuplicateTag,
    Encodings,
    PerSeries,
    read_series,
    write_series,
)
from ccpipe.message import Message
from tests.conftest import needs_kernel


def test_encodings_of_one_series_share_code() -> None:
    """The order of tags and duplicates do not make a new series."""
    table = SeriesTable()
    codes = {table.add(raw) for raw in (b"m,a=1,b=2", b"m,b=2,a=1", b"m,b=9,a=1,b=2", b"m,a=1,b=2")}
    assert len(codes) == len(table) == 1


@given(st.from_type(Message))
def test_read_series_reverses_write_series(message: Message) -> None:
    raw = write_series(message.name, message.tags)
    series = read_series(raw, SeriesTable().grammar)
    assert (series.name, series.tags, series.key) == (message.name, message.tags, raw)
    assert list(series.tags) == sorted(series.tags)


def test_table_is_bounded_in_series() -> None:
    """A full table is replaced by a fresh one; old codes stay valid."""
    table = first = SeriesTable(cap=100)
    generations = 0
    for number in range(1000):
        successor = table.current()
        generations += successor is not table
        table = successor
        for raw in (b"m,job=%d" % number, b"m,host=always"):
            code = table.add(raw)
            assert table.series[code].key == raw
        assert len(table.codes) <= 101
        assert b"m,host=always" in table.codes
    assert generations == 10
    assert first.series[0].tags == {"job": "0"}


def test_table_is_bounded_in_fields() -> None:
    """Field keys are input like tags."""
    table = SeriesTable(cap=100)
    for number in range(1000):
        table = table.current()
        table.add_field(b"f%d" % number)
        assert len(table.fields) <= 100


def test_replaced_table_is_freed_at_once() -> None:
    """No reference cycle: several full ones would otherwise wait for the garbage collector."""
    table = SeriesTable()
    lines = decode_in_python(b"m,a=b value=1 1", table, "s", lenient=False)
    if KERNEL is not None:
        lines = decode_compiled(b"m,a=b value=1 1", table, "s", lenient=False)
    assert lines[0].tags == {"a": "b"}
    encodings = weakref.ref(table.series)
    gc.disable()
    try:
        del lines, table
        assert encodings() is None
    finally:
        gc.enable()


def test_table_takes_fraction_of_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same fraction of any memory, down to a minimum."""
    for memory, wanted in ((80 * 2**30, 10 * 2**30), (2**20, MIN_BYTES)):
        monkeypatch.setattr(series_module, "memory_limit", lambda memory=memory: memory)
        series_module.max_bytes.cache_clear()
        assert series_module.max_bytes() == wanted
    monkeypatch.undo()
    series_module.max_bytes.cache_clear()


def test_duplicate_tag_is_located() -> None:
    """At the second key, even if it is escaped differently."""
    with pytest.raises(DuplicateTag) as caught:
        read_series(b"m,a\\ b=1,c=2,a\\ b=3", INFLUX)
    assert caught.value.start == 13


def test_writer_rejects_name_like_comment() -> None:
    """A reader would skip the line."""
    with pytest.raises(EncodeError, match="comment"):
        write_series("#m", {})


RAW = st.sampled_from(
    [
        *(b"m", b"m,a=1", b"m,a=1,b=2", b"m,b=2,a=1", b"m,a=1,a=2", b"m,ab=1,a=2", b"m,a=2,ab=1"),
        *(b"m,a=1,b=2,c=3,d=4", b"m,d=4,c=3,b=2,a=1", b"n,a=1,b=2,c=3,d=4", b"n,a=1,b=2,d=4"),
        *(rb"m\,x,a=1", rb"m,a\,b=1,c=2,d=3", rb"m,a=1,c=2,d=\,", rb"m,c=2,a=1,d=\,"),
        *("m,a=ä".encode(), rb"m\ x,a=1", rb"m,a\=b=1", rb"m,a=\q", b"x" * 3000),
    ]
)


@given(st.lists(RAW, max_size=30))
def test_kernel_encodings_equal_python(raws: list[bytes]) -> None:
    """Codes, encodings and the check for the canonical form."""
    tables = [SeriesTable(), SeriesTable()]
    tables[1].codes = Encodings()
    codes = [[table.add(raw) for raw in raws] for table in tables]
    assert codes[0] == codes[1]
    kept = [
        (
            len(table),
            len(table.codes),
            [table.codes.get(raw) for raw in [*raws, b"none"]],
            [table.codes.key(code) for code in range(len(table))],
            [table.series[code] for code in codes[0]],
            b"none" in table.codes,
        )
        for table in tables
    ]
    assert kept[0] == kept[1]
    for table in tables:
        with pytest.raises(IndexError):
            table.codes.key(len(table))


def test_decoded_and_added_series_share_codes() -> None:
    """Whether the decoder or a rule adds a series first."""
    table = SeriesTable()
    made = table.code_of(Series("m", {"a": "b"}, b"m,a=b"))
    lines = decode_in_python(b"m,a=b value=1 1\nn value=1 1", table, "s", lenient=False)
    again = decode_in_python(b"n value=2 1\nm,a=b value=1 1", table, "s", lenient=False)
    assert list(lines.series) == [made, again.series[0]]
    if KERNEL is not None:
        compiled = decode_compiled(b"o value=2 1\nn value=2 1", table, "s", lenient=False)
        assert compiled.series[1] == again.series[0]
        assert table.code_of(Series("o", {}, b"o")) == compiled.series[0]


def test_table_is_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few series with very long tags count like many short ones."""
    monkeypatch.setattr(series_module, "max_bytes", lambda: 2**20)
    table = first = SeriesTable()
    for number in range(30):
        table = table.current()
        table.add(b"m,a=%b%d" % (b"x" * 60_000, number))
        assert table.codes.bytes < 2 * 2**20
    assert table is not first


def test_long_series_do_not_take_memory_of_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: 20 000 series of 24 KB took 1.1 GB, the limit for many short ones."""
    monkeypatch.setattr(series_module, "LONG_BYTES", 2**20)
    table = SeriesTable()
    for number in range(2000):
        table = table.current()
        table.add(b"m,a=%b%d" % (b"x" * 24_000, number))
        assert table.codes.bytes < 2 * 2**20
    table = first = SeriesTable()
    for number in range(20_000):
        table = table.current()
        table.add(b"m,a=%b%d" % (b"x" * 300, number))
    assert table is first


def test_series_are_decoded_again_on_access(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Only some stay decoded; all can be read."""
    monkeypatch.setattr(series_module, "_MAX_DECODED", 10)
    table = SeriesTable()
    codes = [table.add(b"m,job=%d" % number) for number in range(100)]
    for _ in range(2):
        for number, code in enumerate(codes):
            assert table.series[code].tags == {"job": str(number)}
    assert len(table.series) <= 11


def test_table_keeps_series_with_undecodable_encoding() -> None:
    """InfluxDB allows names that end in a backslash, which would escape the next byte."""
    table = SeriesTable(INFLUX)
    odd = Series("m\\", {"a": "b"}, b"m\\,a=b")
    assert table.series[table.code_of(odd)] == odd


@needs_kernel
def test_series_of_many_nodes_share_memory_of_their_parts() -> None:
    """Names and tags are stored once: 10 million series take some 250 MB."""
    table = SeriesTable()
    for node in range(500):
        payload = b"".join(
            b"metric_%d,cluster=fritz,hostname=f%04d,type=hwthread,type-id=%d value=1 1\n"
            % (metric, node, thread)
            for thread in range(10)
            for metric in range(10)
        )
        assert len(decode_compiled(payload, table, "s", lenient=False)) == 100
    assert len(table) == 50_000
    assert table.codes.bytes < 30 * len(table)


@needs_kernel
def test_series_are_read_while_another_thread_adds_some() -> None:
    """A sink may encode one payload while the next one is decoded."""
    table, wrong = SeriesTable(), list[int]()
    done = threading.Event()

    def read() -> None:
        while not done.is_set():
            for code in range(0, len(table), 997):
                if not table.codes.key(code).startswith(b"m,job="):
                    wrong.append(code)

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    for start in range(0, 60_000, 6_000):
        payload = b"".join(
            b"m,job=%d%b value=1 1\n" % (n, b",\xc3\xa4\\ =1" * (n % 50 == 0))
            for n in range(start, start + 6_000)
        )
        assert len(decode_compiled(payload, table, "s", lenient=False)) == 6_000
    done.set()
    for reader in readers:
        reader.join()
    assert not wrong
    assert len(table) == 60_000


def test_per_series_cache_is_bounded() -> None:
    """Process and job IDs in tags add series without limit."""
    asked: list[str] = []

    def decide(name: str, _: Mapping[str, str]) -> str:
        asked.append(name)
        return name

    known = PerSeries(decide, maximum=100)
    table = SeriesTable()
    for number in range(1000):
        message = Message(f"m{number}", {}, 1.0)
        for _ in range(2):
            lines = Lines.concat([Lines(table=table), to_lines([message])])
            assert known.of_lines(lines)[lines.series[0]] == message.name
    assert len(asked) == 1000
    assert len(known._by_code) <= 100


def test_per_series_evaluates_batch_larger_than_cache() -> None:
    """All series of the batch, and again after other batches."""
    large = to_lines([Message(f"m{number}", {}, 1.0) for number in range(20)])
    known = PerSeries(lambda name, _: name, maximum=10)
    for lines in (large[:5], large, large[3:9], large):
        decided = known.of_lines(lines)
        assert [decided[code] for code in lines.series] == [m.name for m in lines]
