# ruff: noqa: INP001 - a program, no module
"""A fuzz target for atheris: files of JSON lines and CSV, however torn or hostile.

``python fuzz/rows.py -max_total_time=60`` looks for bytes that raise, that are read differently in
small blocks, that keep a later row from being read, or whose messages are not read back.
"""

import contextlib
import io
import sys

import atheris

with atheris.instrument_imports(include=["ccpipe.formats.rows"]):
    from ccpipe.errors import EncodeError
    from ccpipe.formats.rows import CSV_HEADER, encode_csv, encode_json, read_csv, read_json
    from ccpipe.message import Message, metric

LAST = metric("m", 4711.0, time=5, tags={"hostname": "n1"})


def read(text: bytes, is_csv: bool, block: int) -> tuple[list[Message], list[object]]:
    """Return the messages of a file, and what was rejected, in an order that blocks do not change.

    A block lists unreadable rows before messages that are invalid in line protocol.
    """
    reader = read_csv if is_csv else read_json
    parts = list(reader(io.BytesIO(text), block=block))
    return [each for part in parts for each in part], sorted(
        (bad for part in parts for bad in part.rejected), key=repr
    )


def check(text: bytes) -> None:
    """Read a file that ends with a good row; the first byte chooses format and block."""
    options, text = text[:1] or b"\0", text[1:]
    is_csv = bool(options[0] & 1)
    encode = encode_csv if is_csv else encode_json
    header = CSV_HEADER if is_csv else b""
    whole = header + text + b"\n" + encode([LAST])
    found, rejected = read(whole, is_csv, 2**18)
    in_blocks, rejected_in_blocks = read(whole, is_csv, 1 + (options[0] >> 1))
    assert (repr(in_blocks), rejected_in_blocks) == (repr(found), rejected)  # NaN is not NaN
    if b'"' not in text or not is_csv:
        assert found[-1] == LAST
    with contextlib.suppress(EncodeError):  # NaN in JSON
        again, rejected = read(header + encode(found), is_csv, 2**18)
        assert repr(again) == repr(found)
        assert not rejected


if __name__ == "__main__":
    atheris.Setup(sys.argv, check)
    atheris.Fuzz()
