# ruff: noqa: INP001 - a program, no module
"""A fuzz target for atheris: pages of Prometheus' exporters, however damaged.

``python fuzz/exposition.py -max_total_time=60`` looks for a page that raises anything but
DataError, gives lines that cannot be sent, or is read differently once its series are remembered.
"""

import sys

import atheris

with atheris.instrument_imports(include=["ccpipe.formats.exposition"]):
    from ccpipe.errors import DataError
    from ccpipe.formats.exposition import KnownSeries, Page, PageDecoder
    from ccpipe.formats.lineprotocol import decode, encode

TIME = 1_740_027_951 * 10**9


def read(decoder: PageDecoder, page: bytes, options: int) -> Page | None:
    """Return the page, or None if it is refused."""
    try:
        return decoder.decode(
            page, TIME, own_times=bool(options & 1), is_openmetrics=bool(options & 2)
        )
    except DataError:
        return None


def check(data: bytes) -> None:
    """Read a page twice; the first byte chooses the options."""
    options, page = data[0] if data else 0, data[1:]
    decoder = PageDecoder(KnownSeries(), {"hostname": "n"})
    found = [read(decoder, page, options) for _ in range(2)]
    first, second = found
    if first is None or second is None:
        assert first is second
        return
    assert encode(first.lines) == encode(second.lines)
    assert first.lines.rejected == second.lines.rejected
    assert len(decode(encode(first.lines), precision="ns")) == len(first.lines) <= first.samples


if __name__ == "__main__":
    atheris.Setup(sys.argv, check)
    atheris.Fuzz()
