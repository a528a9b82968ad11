# ruff: noqa: INP001 - a program, no module
"""A fuzz target for atheris: files of dead letters, however torn or hostile.

``python fuzz/dead_letters.py -max_total_time=60`` looks for bytes that raise, that are read as a
dead letter whose bytes are not in them, or that keep a later one from being read.
"""

import io
import sys

import atheris

with atheris.instrument_imports(include=["ccpipe.formats.dead_letters"]):
    from ccpipe.formats.dead_letters import StoredDeadLetter, encode, read

LAST = encode(b"m,hostname=n1 value=4711234", "no such table", time=5, origin="fox.metrics")


def check(payload: bytes) -> None:
    """Read a file that ends with a good dead letter, as a process appends it after a crash."""
    whole = payload + b" torn\n" + LAST
    found = list(read(io.BytesIO(whole)))
    for each in found:
        if isinstance(each, StoredDeadLetter):
            assert each.original in whole
    last = found[-1]
    assert isinstance(last, StoredDeadLetter)
    assert last.original.endswith(b"value=4711234")


if __name__ == "__main__":
    atheris.Setup(sys.argv, check)
    atheris.Fuzz()
