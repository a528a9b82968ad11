"""The compiled kernel: same results as the Python code for every input."""

import inspect
from array import array
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.errors import CcpipeError
from ccpipe.formats.lineprotocol import (
    Dialect,
    Lines,
    Precision,
    SeriesTable,
    decode,
    decoder,
    encode,
    encode_rows,
    to_lines,
)
from ccpipe.formats.lineprotocol.decoder import _GRAMMARS, decode_compiled, decode_in_python
from ccpipe.formats.lineprotocol.kernel import KERNEL
from ccpipe.formats.lineprotocol.lines import COLUMNS
from ccpipe.formats.prometheus import RemoteWrite
from ccpipe.message import Message
from tests.conftest import needs_kernel


def reported(lines: Lines) -> list[object]:
    return [
        *(memoryview(column).tobytes() for column in lines.columns[2:]),
        [lines.table.series[code] for code in lines.series],
        [lines.table.fields[code] for code in lines.fields],
        list(lines.texts),
        list(lines.texts.spans),
        lines.rejected,
        lines.precision,
        lines.verbatim,
        lines.used_types,
        None if lines.only_field is None else lines.table.fields[lines.only_field],
        lines.passthrough(),
        len(lines),
        list(map(repr, lines)),
    ]


digits = st.text("0123456789", min_size=1, max_size=24)
numbers = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.builds("{}{}.{}".format, st.sampled_from(["", "-"]), digits, digits),
    st.builds("{}.{}e{}".format, digits, digits, st.integers(-400, 400)),
    st.builds("{}{}".format, digits, st.sampled_from(["i", "u", ".", "", "e", "f"])),
    st.builds("-{}i".format, digits),
    st.integers(-(2**64), 2**65).map("{}i".format),
    st.sampled_from(
        ["t", "T", "true", "True", "TRUE", "f", "F", "false", "False", "FALSE", "tRUE", "tru",
         "-", ".", "+1", "1_0", "nan", "inf", "0x1p3", "9223372036854775807i", "-0", "1e-320",
         "9223372036854775808u", "18446744073709551615u", "18446744073709551616u", "1e400"]
    ),
).map(str.encode)  # fmt: skip
quoted = st.lists(
    st.sampled_from(
        [b"a", b"\\n", b"\\t", b"\\\\", b'\\"', b"\n", b" ", b",v=", "ü€😀".encode(),
         b"\\", b"\x00", b"longer than eight bytes", b"\xff", b"\xc3",
         b"\xed\xa0\x80", b"\xf4\x90\x80\x80"]
    ),
    max_size=5,
).map(lambda parts: b'"%b"' % b"".join(parts))  # fmt: skip
heads = st.sampled_from(
    [b"m", b"m,a=b", b"m,b=2,a=1", b"m,a=1,b=2", b"m,a=1,a=2", b"m\\ x,a\\=\\,=\\ ", b"m=,a=b",
     b"load,host=n1,type=node", b"load,host=n2,type=node", "läuft,größe=ö".encode(), b"m,t=\xff",
     b"m,", b"m,a=", b"m,=b", b"m,a", b"#m", b" m", b"m\\", b"m,a=b\\", b"m\x01", b'"m"',
     b"m,t=\x02", b"m," + b"k" * 600 + b"=v", b"m,k=" + b"v" * 65530, b"m,k=" + b"v" * 65531]
)  # fmt: skip
keys = st.sampled_from(
    [b"value", b"value", b"value", b"event", b"a\\ b", b"a\\=b", b"v=", b"", b"\xff", "ü".encode()]
)
stamps = st.one_of(
    st.sampled_from([b"", b" ", b" 1740027951", b" 1740027951000000000", b"  5  ", b" -5", b" -",
                     b" 1.5", b" 1 2", b" 9223372036854775807", b" 9223372036854775808",
                     b" 1740027951123", b" -1740027951123456", b" 000000000000000000000005"]),
    st.integers(-(2**65), 2**65).map(b" %d".__mod__),
)  # fmt: skip
fields = st.lists(
    st.builds(b"%b=%b".__mod__, st.tuples(keys, numbers | quoted)), min_size=1, max_size=4
).map(b",".join)
lines_ = st.builds(b"%b %b%b".__mod__, st.tuples(heads, fields, stamps))
ends = st.sampled_from([b"\n", b"\n", b"\n", b"\r\n", b"\r", b" \n", b"\n\n#x\n", b"", b"x"])
payloads = st.one_of(
    st.lists(
        st.builds(b"%b%b".__mod__, st.tuples(lines_, ends)) | st.binary(max_size=10), max_size=8
    ).map(lambda parts: b"".join(parts + parts)),
    st.binary(max_size=100),
    st.lists(st.sampled_from([b"m", b" v=", b'"', b"1", b"\\", b"\n", b",", b"=", b" 5", b"\r"]),
             max_size=30).map(b"".join),
)  # fmt: skip
precisions: st.SearchStrategy[Precision | None] = st.sampled_from(
    [None, None, "s", "ms", "us", "ns"]
)
dialects: st.SearchStrategy[Dialect] = st.sampled_from(["cc", "influx"])


@needs_kernel
@given(
    payloads,
    precisions,
    dialects,
    st.booleans(),
    st.none() | st.integers(0, 3),
    st.sampled_from([bytes, bytearray, memoryview]),
    st.integers(1, 5),
)
def test_decode_gives_same_result_with_and_without_kernel(
    payload: bytes,
    precision: Precision | Literal["auto"] | None,
    dialect: Dialect,
    lenient: bool,
    max_rejected: int | None,
    kind: Callable[[bytes], bytes],
    cap: int,
) -> None:
    """Also with a full or a new table."""
    precision = precision or "auto"
    here = decoder._tables.of
    for table in (SeriesTable(_GRAMMARS[dialect], cap), here[dialect]):
        here[dialect] = table
        for _ in range(2):
            found = decode(
                kind(payload),
                precision=precision,
                dialect=dialect,
                lenient=lenient,
                max_rejected=max_rejected,
            )
            assert reported(found) == reported(
                decode_in_python(
                    payload, SeriesTable(_GRAMMARS[dialect]), precision, lenient, max_rejected
                )
            )


@needs_kernel
def test_decode_replaces_full_table() -> None:
    """New series in every payload do not grow a thread's table without limit."""
    here = decoder._tables.of
    whole, here["cc"] = here["cc"], SeriesTable(cap=10)
    try:
        for name in ("series", "fields"):
            tables = set()
            for number in range(100):
                line = b"m,job=%d v=1" if name == "series" else b"m v%d=1"
                lines = decode(line % number)
                tables.add(lines.table)
                assert max(len(lines.table.codes), len(lines.table.fields)) <= 10
            assert len(tables) == 10
            here["cc"] = SeriesTable(cap=10)
    finally:
        here["cc"] = whole


@needs_kernel
@given(st.permutations(COLUMNS), st.booleans(), st.integers(0, len(COLUMNS)))
def test_columns_are_equal_in_any_order_of_access(
    names: list[str], is_large: bool, asked: int
) -> None:
    """Columns are built on access; added rows then follow in all of them."""
    payload = b"".join(
        b'm,a=%d v=%d,w=t,x="%d" %d\n' % (n % 7, n, n, n) for n in range(600 if is_large else 3)
    )
    lines = decode_compiled(payload, SeriesTable(), "auto", lenient=False)
    twin = decode_in_python(payload, SeriesTable(), "auto", lenient=False)
    for name in names[:asked]:
        assert getattr(lines, name).tobytes() == getattr(twin, name).tobytes()
    for each in (lines, twin):
        each.append(0, 0, 1.5, 5)
    assert [column.tobytes() for column in lines.columns] == [
        column.tobytes() for column in twin.columns
    ]
    assert len(lines) == len(twin)


def outcome(work: Callable[[], object]) -> object:
    try:
        return work()
    except CcpipeError as error:
        return type(error), str(error)


def results(
    read: Callable[..., Lines],
    payloads: list[bytes],
    dialect: Dialect,
    lenient: bool,
    keep: list[bool],
    rows: slice,
) -> list[object]:
    parts = [read(payload, dialect=dialect, lenient=lenient) for payload in payloads]
    whole = Lines.concat([Lines(), *parts])
    other = Lines.concat([*parts, Lines()])
    alike = Lines.concat(parts) if parts else whole
    units: tuple[Precision | Literal["auto"], ...] = ("s", "ms", "us", "ns", "auto")
    found: list[object] = []
    kept = whole.take((keep * len(whole))[: len(whole)])
    for lines in (*parts, whole, other, alike, whole[rows], kept):
        found += reported(lines)
        found.append(lines.passthrough())
        found += [outcome(lambda: encode(lines, precision=unit)) for unit in units]  # noqa: B023
        found += [outcome(lambda: encode(list(lines), precision=unit)) for unit in units]  # noqa: B023
        found.append(outcome(lambda: encode_rows(lines)))  # noqa: B023
        found += map(lines.original, range(len(lines)))
        found.append(outcome(lambda: RemoteWrite().write_request(lines)))  # noqa: B023
    found.append(RemoteWrite().write_request(whole.fill_missing_times(5)))
    return found


@needs_kernel
@given(
    st.lists(payloads, max_size=3),
    dialects,
    st.booleans(),
    st.lists(st.booleans(), min_size=1, max_size=8),
    st.slices(8),
)
def test_every_operation_gives_same_result_with_kernel(
    payloads: list[bytes], dialect: Dialect, lenient: bool, keep: list[bool], rows: slice
) -> None:
    """Decode, join, slice, pass through, encode, and write for Prometheus."""
    compiled = results(decode, payloads, dialect, lenient, keep, rows)
    with pytest.MonkeyPatch.context() as patch:
        for module in ("decoder", "encoder", "lines", "values"):
            patch.setattr(f"ccpipe.formats.lineprotocol.{module}.KERNEL", None)
        patch.setattr("ccpipe.formats.prometheus.KERNEL", None)
        in_python = inspect.unwrap(decode)
        assert results(in_python, payloads, dialect, lenient, keep, rows) == compiled


@needs_kernel
def test_messages_are_built_for_existing_rows_only() -> None:
    """For any range of the rows."""
    assert KERNEL is not None
    lines = decode(b'm,a=1 v=1,i=2i,u=3u,b=t,s="x" 5\nm,a=1 v=1\n' * 1000)
    assert list(lines) == [lines[index] for index in range(len(lines))]
    assert KERNEL.messages(lines, 4, 6) == [lines[4], lines[5]]
    with pytest.raises(IndexError):
        KERNEL.messages(lines, 0, len(lines) + 1)


@needs_kernel
def test_threads_decode_concurrently() -> None:
    """Large payloads are read without the interpreter lock; each thread has its own table."""

    def work(start: int) -> list[str]:
        payload = b"".join(b"m,job=%d value=%d 5\n" % (n, n) for n in range(start, start + 5000))
        return [m.tags["job"] for _ in range(5) for m in decode(payload)]

    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(work, range(0, 8000, 1000)))
    assert results == [
        [str(n) for _ in range(5) for n in range(start, start + 5000)]
        for start in range(0, 8000, 1000)
    ]


@needs_kernel
@given(
    st.floats(allow_nan=False, allow_infinity=False)
    | st.integers(-(2**60), 2**60).map(float)
    | st.builds("{}e{}".format, st.integers(1, 10**17), st.integers(-30, 5)).map(float)
)
def test_kernel_writes_float_like_python(value: float) -> None:
    """The shortest form that reads back as the same double, with ``repr``'s choice of notation."""
    assert encode([Message("m", {}, value)]) == b"m value=%b\n" % repr(value).encode()


@needs_kernel
def test_kernel_rejects_inconsistent_columns() -> None:
    """An error, not a crash."""
    lines = to_lines([Message("m", {}, "x")])
    for column, bad in [("series", 2**30), ("series", -(2**30)), ("exact", 7), ("exact", -7)]:
        broken = to_lines([Message("m", {}, "x")])
        getattr(broken, column)[0] = bad
        with pytest.raises(IndexError):
            encode(broken)
    del lines.times[0]
    with pytest.raises(ValueError, match="columns differ"):
        encode(lines)
    assert KERNEL is not None
    for select in (KERNEL.kept, KERNEL.keeps_lines_whole):
        for flags in (b"", b"123"):
            with pytest.raises(ValueError, match="flag"):
                select(array("q", [1, 2]), flags)


@needs_kernel
def test_kernel_does_not_leak_memory() -> None:
    """The memory of rows, texts, rejected lines and new series is freed."""
    payload = b'm,a=b value=1.5 1\nm log="\\"x\\"",v=t,n=5i 2\nbad\nm,t=\xff v=1\n' * 50

    def work(times: int) -> int:
        for number in range(times):
            table = SeriesTable()
            lines = decode_compiled(payload + b"m,job=%d v=1 1\n" % number, table, "auto", True)
            encode(lines)
            encode(list(lines))
            lines.passthrough()
            Lines.concat([lines, lines])
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

    before = work(100)
    assert work(400) - before < 2 * 2**20
