"""Frames, read as the page reads them."""

import json
import math
import struct
from array import array

from hypothesis import given
from hypothesis import strategies as st

from ccpipe.dashboard.frame import frame


@given(
    st.dictionaries(st.text(), st.integers(-(2**31), 2**31) | st.text()),
    st.lists(st.floats(width=32)),
)
def test_a_frame_is_its_json_and_its_floats(
    header: dict[str, int | str], values: list[float]
) -> None:
    """The floats begin at a multiple of four, as typed arrays want it."""
    encoded = frame(header, array("f", values))
    (size,) = struct.unpack_from("<I", encoded)
    assert size % 4 == 0
    assert json.loads(encoded[4 : 4 + size]) == header
    read = struct.unpack(f"<{len(values)}f", encoded[4 + size :])
    assert all(
        a == b or (math.isnan(a) and math.isnan(b)) for a, b in zip(read, values, strict=True)
    )


def test_a_frame_may_have_no_floats() -> None:
    """It ends with its JSON."""
    assert frame({}) == b"\x04\x00\x00\x00{}  "
