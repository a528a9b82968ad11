"""Accounting as columns: always equal to reading line by line."""

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.formats.gridengine import read
from ccpipe.formats.gridengine.columns import (
    COLUMNS,
    SCHEMA,
    from_records,
    plain_lines,
    read_columns,
    read_compiled,
    read_in_python,
)
from ccpipe.formats.gridengine.jsonl import KEYS
from ccpipe.formats.gridengine.kernel import KERNEL
from ccpipe.formats.gridengine.record import Accounting, Amount, Origin, Variant
from tests.conftest import needs_kernel
from tests.formats.gridengine.accounting_samples import CLASSIC, DATA, SAMPLES, TAIL, data, mutated

EVERYTHING = SCHEMA.names


def rows(table: Any) -> list[dict[str, Any]]:
    assert table.schema == SCHEMA
    found: list[dict[str, Any]] = table.to_pylist()
    assert not any(isinstance(v, float) and math.isnan(v) for row in found for v in row.values())
    return found


def check(payload: bytes) -> None:
    expected = read_in_python(payload, EVERYTHING, 10, 100)
    expected.table.validate(full=True)
    if KERNEL is None:
        return  # the property test below fails or is skipped by name
    found = read_compiled(payload, EVERYTHING, 10, 100)
    found.table.validate(full=True)
    assert rows(found.table) == rows(expected.table)
    for names in (COLUMNS, ("cpu", "line", "cpu"), ("job_number",)):
        some = read_compiled(payload, names, 10, 100)
        assert some.table.equals(found.table.select(names))
        assert some.rejected == expected.rejected
        assert (some.size, some.lines) == (expected.size, expected.lines)


@pytest.mark.parametrize("name", [*SAMPLES, "derived/derived-malformed.jsonl"])
def test_columns_equal_records_of_samples(name: str) -> None:
    """Same rows, rejected lines and positions for every sample."""
    check((DATA / name).read_bytes())


def test_columns_count_empty_lines() -> None:
    """They are not records, but later lines keep their numbers."""
    lines = (DATA / "accounting").read_bytes().splitlines(keepends=True)[4:8]
    for payload in (b"\n".join([*lines, b""]), b"\n" + lines[0], lines[0] + b"\n", b"\n"):
        check(payload)


@given(st.lists(st.sampled_from(SAMPLES).flatmap(mutated), min_size=1, max_size=3).map(b"".join))
def test_columns_equal_records_of_damaged_lines(payload: bytes) -> None:
    """Both readers report the same errors."""
    check(payload)


@given(st.binary(max_size=200))
def test_columns_equal_records_of_any_bytes(payload: bytes) -> None:
    """No bytes raise an exception."""
    check(payload)


def test_columns_reject_unknown_name() -> None:
    with pytest.raises(KeyError, match="cpus"):
        read_columns(b"", ["cpus"])


def test_columns_have_values_of_records() -> None:
    """Numbers, texts and times of the real file are in the columns of their names."""
    records = data("accounting").records
    table = from_records(records, SCHEMA.names)
    assert table.schema == SCHEMA
    for name in ("job_number", "owner", "project", "start_time", "pe_taskid", "category"):
        assert table[name].to_pylist() == [getattr(record, name) for record in records]
    assert table["cpu"].to_pylist() == [record.cpu for record in records]
    assert table["ru_wallclock"].to_pylist() == [record.wallclock for record in records]
    assert table["offset"].to_pylist() == [record.origin.offset for record in records]


def test_columns_omit_position_by_default() -> None:
    """Line and offset are read only on request."""
    assert from_records([]).schema.names == list(COLUMNS)
    assert {"line", "offset"}.isdisjoint(COLUMNS)


def test_columns_are_null_for_missing_usage() -> None:
    """Null is not 0: nothing was measured."""
    row = from_records([Accounting(job_number=1, usage={"eusage": {"mem": 0}})]).to_pylist()[0]
    assert (row["mem"], row["cpu"], row["ru_utime"]) == (0, None, None)
    assert (row["usage_json"], row["extra_json"]) == (None, None)


def test_columns_keep_other_values_as_json() -> None:
    """Custom containers and names, texts in the usage, and unknown keys are in JSON."""
    usage: dict[str, dict[str, Amount]] = {
        "eusage": {"cpu": 1.5, "watts": 3, "mem": "much"},
        "gpu": {"cpu": 2},
    }
    record = Accounting(job_number=1, usage=usage, extra={"colour": [1]})
    row = from_records([record]).to_pylist()[0]
    assert (row["cpu"], row["mem"]) == (1.5, None)
    assert json.loads(row["usage_json"]) == {
        "eusage": {"watts": 3, "mem": "much"}, "gpu": {"cpu": 2},
    }  # fmt: skip
    assert json.loads(row["extra_json"]) == {"colour": [1]}


def test_columns_replace_invalid_utf8() -> None:
    """Arrow's strings must be UTF-8; JSON columns escape the bytes instead."""
    record = Accounting(job_number=1, job_name="caf\udce9", extra={"x": "\udce9"})
    row = from_records([record]).to_pylist()[0]
    assert row["job_name"] == "caf\ufffd"
    assert row["extra_json"] == r'{"x":"\udce9"}'


def test_columns_have_variant_of_origin() -> None:
    record = Accounting(job_number=1, origin=Origin(variant=Variant.UNIVA_52))
    assert from_records([record], ["variant"]).to_pylist() == [{"variant": "univa-52"}]


@needs_kernel
def test_kernel_reads_usual_lines() -> None:
    """All lines of the real file, and all others that were not made unusual."""
    for name, unusual in (("accounting", []), ("derived.jsonl", [0, 18, 19, 20])):
        plain = plain_lines((DATA / name).read_bytes(), COLUMNS, 1, 0)
        assert [each.line for each in plain.unusual] == unusual


@needs_kernel
@pytest.mark.parametrize("category", ["-l h_rt=24:00:00,h_vmem=2G", "a:b:c:d:e:f:g:h", "-", "ü"])
def test_kernel_reads_colons_in_category(category: str) -> None:
    """Times with colons are common at many sites; so are 43 fields at old ones."""
    lines = [f"{CLASSIC}{category}:{TAIL}:3:1795170700", f"{CLASSIC}NONE:{TAIL}"]
    payload = "".join(f"{line}\n" for line in lines).encode()
    plain = plain_lines(payload, EVERYTHING, 1, 0)
    assert plain.unusual == []
    assert rows(plain.table) == rows(from_records(read(payload).records, EVERYTHING))


UNUSUAL = [
    b"", b" 1", b"1 ", b"\t2", b"+1", b"-0", b"-1", b"0x10", b"1_0", b"00", b"007", b"1.", b".5",
    b"1.5", b"-1.5", b"1.0", b"1e3", b"1E-2", b"1e", b"1.e1", b"4e-7", b"1e400", b"1e-400", b"nan",
    b"inf", b"-inf", b"infinity", b"NULL", b"NONE", b"none", b"None", b"-", b"#", b"{", b"acct",
    b"999999999999999", b"9007199254740992", b"9007199254740993", b"9223372036", b"9223372037",
    b"9223372036854775", b"9223372036854776", b"9223372036854775807", b"9223372036854775808",
    b"99999999999", b"1795170751125", b"1795170751125000", b"12345678901234567890123", b"0" * 30,
    b"0.1234567890123456789", b"12345678901234567.0", b"0.000000000000000000000000000001",
    b"1.node02", b"1.5e3", b".node", b"12.", b"1.2-3", b"1._", b"x1.y", b"1 2", b"1\r", b"1\x00",
    "٣".encode(), "ü€😀".encode(), b"longer than eight bytes", b"fifteen bytes !",
    b"16 bytes and not", b"\xff", b"a\xffb", b"\xed\xa0\x80", b"\xc3", b"a" * 5000,
]  # fmt: skip
"""Values of a field."""


@given(st.lists(st.tuples(st.integers(0, 44), st.sampled_from(UNUSUAL)), max_size=2))
def test_columns_keep_order_of_unusual_lines(edits: list[tuple[int, bytes]]) -> None:
    """Rows are in the order of the file."""
    usual = f"{CLASSIC}NONE:{TAIL}:0:0".encode()
    fields = usual.split(b":")
    for number, text in edits:
        fields[number] = text
    colons = f"{CLASSIC}-l a=b:c:{TAIL}:0:0".encode()
    lines = [b"# x", usual, b":".join(fields), colons, b"", usual, b"junk", colons, usual, b""]
    check(b"\n".join(lines))


def test_columns_equal_records_for_unusual_fields() -> None:
    """All readers agree on any value of a field."""
    fields = f"{CLASSIC}-l h_rt=4:{TAIL}:0:0".encode().split(b":")
    edited = [
        [*fields[:at], unusual, *fields[at + 1 :]]
        for at in range(len(fields))
        for unusual in UNUSUAL
    ]
    check(b"".join(b":".join(each) + b"\n" for each in edited))


def test_columns_equal_records_for_any_colons_in_category() -> None:
    """Texts, and numbers of a truncated record, in lines of 43 and of 45 fields."""
    categories = [part * count for count in range(14) for part in (":", "a:b", ":0", "1:2.5:-3")]
    categories += [
        f"{unusual.decode()}:{part}" for unusual in UNUSUAL[:20] for part in categories[:8]
    ]
    tails = (TAIL, f"{TAIL}:3:1795170700", f"{TAIL}:3", f"NONE:{TAIL}", f"0:{TAIL}:0:x")
    lines = (f"{CLASSIC}{category}:{tail}\n" for category in categories for tail in tails)
    check("".join(lines).encode())


STRINGS = [
    b'""', b'"-"', b'"acct"', b'"new_job"', b'"NONE"', b'"none"', b'"1.node02"', br'"a\"b"',
    br'"\""', br'"\\"', br'"\/\b\f\n\r\t"', br'"long enough for a word\n and another\\"',
    br'"a\u00e9"', br'"\ud800"', br'"a\x"', b'"a\\', b'"a', b'"longer than eight', b'"a\tb"',
    b'"a tab within\tmany"', b'"longer than sixteen bytes"', b'"\x7f"', b'"\x00"', b'"\xff"',
    '"ü😀"'.encode(), b"null", b"true", b"[]", b"{}", b"[1]", b'{"a":1}', b'{"cpu":1}',
    b'{"cpu":1,}', b" 7", b"7 ",
]  # fmt: skip
"""Further values of a JSON key."""


def parts_of(line: str) -> tuple[dict[str, bytes], dict[str, dict[str, bytes]]]:
    tree = json.loads(line)
    usage = tree.pop("usage")
    return values_of(tree), {name: values_of(container) for name, container in usage.items()}


def values_of(tree: dict[str, Any]) -> dict[str, bytes]:
    return {key: json.dumps(value).encode() for key, value in tree.items()}


def written(values: dict[str, bytes]) -> bytes:
    return b"{%b}" % b",".join(b'"%b":%b' % (key.encode(), values[key]) for key in values)


def line_of(top: dict[str, bytes], usage: dict[str, dict[str, bytes]]) -> bytes:
    containers = {name: written(container) for name, container in usage.items()}
    return written({**top, "usage": written(containers)}) + b"\n"


NEWEST = (DATA / "derived.jsonl").read_text().splitlines()[16]
TOP, USAGE = parts_of(NEWEST)
RARE = {
    "time": b"1795170751125000", "type": b'"acct"', "project": b'"astro"', "granted_pe": b'"mpi"',
    "arid": b"3", "ar_submission_time": b"1795170750125000", "deleted_by": b'"anna@login1"',
}  # fmt: skip
WHOLE = {key: {**RARE, **TOP}[key] for key in KEYS if key != "usage"}
"""Every key in order."""


@needs_kernel
def test_kernel_reads_all_keys() -> None:
    """A line with all keys is plain; otherwise the tests below would prove nothing."""
    assert plain_lines(line_of(WHOLE, USAGE), COLUMNS, 1, 0).unusual == []


def test_columns_equal_records_for_unusual_json_values() -> None:
    """All readers agree on any value of a key, known or not."""
    lines = []
    for unusual in UNUSUAL + STRINGS:
        lines += [line_of({**WHOLE, key: unusual}, USAGE) for key in (*WHOLE, "new")]
        lines.append(written({**WHOLE, "usage": unusual}) + b"\n")
        for name, container in USAGE.items():
            edited = [{**USAGE, name: {**container, key: unusual}} for key in (*container, "new")]
            lines += [line_of(WHOLE, each) for each in edited]
    for start in range(0, len(lines), 500):
        check(b"".join(lines[start : start + 500]))


def test_columns_equal_records_for_missing_keys() -> None:
    """Also for duplicate keys, and keys in another order."""
    lines = [line_of({key: WHOLE[key] for key in WHOLE if key != each}, USAGE) for each in WHOLE]
    lines += [line_of({each: WHOLE[each], **WHOLE, "end": b"1"}, USAGE) for each in WHOLE]
    for name, container in USAGE.items():
        for missing in container:
            rest = {key: container[key] for key in container if key != missing}
            lines.append(line_of(WHOLE, {**USAGE, name: rest}))
            lines.append(line_of(WHOLE, {**USAGE, name: {**rest, missing: container[missing]}}))
        lines.append(line_of(WHOLE, {name: container}))
        lines.append(line_of(WHOLE, {**USAGE, name: {}}))
    lines.append(written({**WHOLE, "deleted_by": b'"a\tb"'}) + b"\n")
    lines += [line_of(WHOLE, {}), line_of(WHOLE, dict(reversed(USAGE.items()))), b"{}\n"]
    line = line_of(WHOLE, USAGE).rstrip(b"\n")
    lines += [line[:end] + b"\n" for end in range(len(line))]
    lines += [line + tail + b"\n" for tail in (b"\r", b" ", b"}", b",", b"x", b"{}")]
    lines += [written(dict(list(WHOLE.items())[:count])) + b"\n" for count in range(len(WHOLE) + 1)]
    check(b"".join(lines))


@given(
    st.dictionaries(
        st.sampled_from([*KEYS, "unknown"]), st.sampled_from(UNUSUAL + STRINGS), max_size=3
    ),
    st.randoms(use_true_random=False),
)
def test_columns_equal_records_for_keys_in_any_order(edits: dict[str, bytes], dice: Any) -> None:
    """All readers agree, whatever the order of the keys."""
    keys = [*TOP, *edits]
    dice.shuffle(keys)
    unusual = line_of({key: {**TOP, **edits}[key] for key in keys}, USAGE)
    check(b"%b\n%b%b\n" % (NEWEST.encode(), unusual, NEWEST.encode()))
