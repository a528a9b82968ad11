# ruff: noqa: INP001 - a program, no module
"""A fuzz target for atheris: HTTP requests of any client, however damaged or hostile.

``python fuzz/http_requests.py -max_total_time=60`` looks for bodies and headers that raise anything
but a refusal, or streams for Sonar's Kafka proxy that are cut differently in small blocks.
"""

import base64
import contextlib
import sys

import atheris

with atheris.instrument_imports(
    include=["ccpipe.formats.sonar.kprox", "ccpipe.sources.http_requests"]
):
    from ccpipe.errors import DataError
    from ccpipe.formats.sonar.kprox import MAX_CONTROL, KproxDecoder
    from ccpipe.sources.http_requests import CHUNK, Credentials, Refused, Unpacker

LARGEST = 1000
CREDENTIALS = Credentials({"user": "a password"}, "a token of many characters")


def messages(stream: bytes, block: int) -> tuple[list[bytes], str]:
    """Return the messages of a stream that arrives in blocks, and what is wrong with it."""
    decoder = KproxDecoder(LARGEST, lambda _: None)
    found: list[bytes] = []
    try:
        for start in range(0, len(stream), block):
            found += decoder.feed(stream[start : start + block])
            assert decoder.buffered <= max(LARGEST, MAX_CONTROL) + block
        decoder.finish()
    except DataError as error:
        return found, str(error)
    return found, ""


def check(data: bytes) -> None:
    """Read the same bytes as a stream, as a compressed body, and as a header."""
    block, stream = 1 + data[:1][0] if data else 1, data[1:]
    assert messages(stream, block) == messages(stream, max(1, len(stream)))
    unpack = Unpacker()
    with contextlib.suppress(Refused):
        for start in range(0, len(stream), block):
            assert all(len(part) <= CHUNK for part in unpack.pieces(stream[start : start + block]))
    header = stream.decode(errors="surrogateescape")
    encoded = base64.b64encode(stream).decode()
    for each in (header, f"Basic {header}", f"Basic {encoded}", f"Bearer {header}"):
        with contextlib.suppress(Refused):
            CREDENTIALS.check(each).check([header])


if __name__ == "__main__":
    atheris.Setup(sys.argv, check)
    atheris.Fuzz()
