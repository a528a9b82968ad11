# ruff: noqa: INP001 - a program, no module
"""A fuzz target for atheris: the compiled kernel against the Python code, encode against decode.

``python fuzz/lines.py -max_total_time=60`` searches for bytes on which they differ, or that crash.
"""

import sys

import atheris

with atheris.instrument_imports(include=["ccpipe.formats.lineprotocol"]):
    from ccpipe.formats.lineprotocol import Lines, SeriesTable, decode, encode
    from ccpipe.formats.lineprotocol.decoder import decode_compiled, decode_in_python
    from ccpipe.formats.lineprotocol.grammar import CC, INFLUX


def reported(lines: Lines) -> list[object]:
    """Return everything about decoded lines but the numbers of series and fields in a table."""
    return [
        *(column.tobytes() for column in lines.columns[2:]),
        [lines.table.series[code] for code in lines.series],
        [lines.table.fields[code] for code in lines.fields],
        list(lines.texts),
        lines.rejected,
        lines.precision,
        lines.verbatim,
    ]


def check(text: bytes) -> None:
    """Decode in every way and compare; the first byte chooses the options."""
    options, text = text[:1] or b"\0", text[1:]
    grammar = INFLUX if options[0] & 1 else CC
    lenient = bool(options[0] & 2)
    max_rejected = options[0] >> 3 & 3 if options[0] & 4 else None
    ours, theirs = SeriesTable(grammar, cap=10), SeriesTable(grammar, cap=10)
    for payload in (text, text + b"\n" + text):  # the second time with known series
        ours, theirs = ours.current(), theirs.current()
        lines = decode_compiled(payload, ours, "auto", lenient, max_rejected)
        assert reported(lines) == reported(
            decode_in_python(payload, theirs, "auto", lenient, max_rejected)
        )
    if grammar is CC:
        again = decode(encode(lines, precision="ns"), precision="ns")
        assert list(again) == list(lines)
        assert not again.rejected


if __name__ == "__main__":
    atheris.Setup(sys.argv, check)
    atheris.Fuzz()
