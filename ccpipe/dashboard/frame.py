"""Frames: what goes to the page, as JSON and columns of 32-bit floats.

A frame is the length of its JSON (4 bytes, little-endian), the JSON padded with blanks to a
multiple of 4, and the floats as the machine has them (little-endian on all that ccpipe runs on).
NaN, which JSON cannot say, stands for a missing value.
"""

import struct
import sys
from array import array
from collections.abc import Mapping
from typing import Any

import msgspec

_encoder = msgspec.json.Encoder()


def frame(header: Mapping[str, Any], numbers: "array[float] | None" = None) -> bytes:
    """Encode a frame."""
    text = _encoder.encode(header)
    text += b" " * (-len(text) % 4)
    if numbers is None:
        return struct.pack("<I", len(text)) + text
    if sys.byteorder == "big":
        numbers = numbers[:]
        numbers.byteswap()
    return struct.pack("<I", len(text)) + text + numbers.tobytes()
