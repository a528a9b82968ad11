"""Chunks deflated at level 0, as Slurm writes them: many at once, and still checked.

At level 0 a chunk is its bytes between a head and a checksum, both of constant size (RFC 1950 and
1951). A large job has hundreds of thousands of chunks of ten records, and taking them apart one by
one takes twice as long.
"""

import struct
import zlib

import numpy as np

from ccpipe.formats.slurm_profile.hdf5.arrays import Array

HEAD, TAIL = 7, 4
"""Bytes before and after the records: of zlib and the only block, and the checksum."""

MAX_SIZE = 2**16 - 1
"""Bytes that one block can hold."""


def unpack_stored(chunks: Array) -> bytes | None:
    """Return the contents of chunks of the same size, one in each row.

    None where zlib has to look at them: a chunk is compressed, or does not match its checksum.
    """
    size = chunks.shape[1] - HEAD - TAIL
    if not 0 < size <= MAX_SIZE:
        return None
    head = struct.pack("<BBBHH", *zlib.compress(b"", 0)[:2], 1, size, size ^ 0xFFFF)
    if not (chunks[:, :HEAD] == np.frombuffer(head, np.uint8)).all():
        return None
    records = chunks[:, HEAD:-TAIL].tobytes()
    view = memoryview(records)
    found = [zlib.adler32(view[start : start + size]) for start in range(0, len(view), size)]
    expected = np.ascontiguousarray(chunks[:, -TAIL:]).view(">u4")[:, 0]
    return records if expected.tolist() == found else None
