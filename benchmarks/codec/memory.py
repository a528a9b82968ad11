"""Memory of a table of series, and whether it stays within its cap."""

import subprocess
import sys

import msgspec

_PROGRAM = """
import sys
from ccpipe.formats.lineprotocol import SeriesTable
from ccpipe.formats.lineprotocol.decoder import decode_compiled, decode_in_python
from ccpipe.formats.lineprotocol.kernel import KERNEL

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096

decode = decode_in_python if KERNEL is None else decode_compiled
series, cap = int(sys.argv[1]), int(sys.argv[2])
table, start, peak, maximum = SeriesTable(cap=cap), resident(), 0, 0
for first in range(0, series, 10_000):
    payload = b"".join(
        b"proc,cluster=fritz,hostname=f%04d,pid=%d,type=node value=1.5 1740027951\\n" % (n % 64, n)
        for n in range(first, first + 10_000)
    )
    table = table.current()
    lines = decode(payload, table, "auto", False)
    assert len(lines) == 10_000
    peak, maximum = max(peak, resident()), max(maximum, len(table.codes))
print(peak - start, maximum)
"""


class Memory(msgspec.Struct):
    """Growth of a process that decodes new series."""

    series: int
    cap: int
    bytes: int
    maximum: int
    """The largest number of encodings in the table at a time."""


def growth(series: int, cap: int) -> Memory:
    """Decode lines of new series in a process of its own."""
    done = subprocess.run(  # noqa: S603 - our own program
        [sys.executable, "-c", _PROGRAM, str(series), str(cap)],
        check=True,
        capture_output=True,
        text=True,
    )
    size, maximum = map(int, done.stdout.split())
    return Memory(series, cap, size, maximum)
