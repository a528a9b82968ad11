"""Readings and their codec."""

from typing import NamedTuple

import pytest

from ccpipe import Packing, Subjects
from ccpipe_pdu.readings import PduCodec, Reading, Readings, decode

READING = Reading("rack17", "A", "12", 231.5, 1763596800)
SUBJECTS = Subjects(cluster="fritz", hostname="f0101")


class Payload(NamedTuple):
    """A message of a broker."""

    payload: bytes
    subject: str = "pdu.readings"
    arrival: int = 0


def test_decode_returns_readings_and_bad_lines() -> None:
    """A bad line has its number, its position and the reason."""
    readings = decode(b"rack17;A;12;231.5;1763596800\nrack17;A\nrack17;A;12;nan;1\n")
    assert readings == [READING]
    assert [(bad.line, bad.offset, bad.reason) for bad in readings.rejected] == [
        (2, 29, "2 fields; expected rack;feed;outlet;watts;time"),
        (3, 38, "not a power: nan"),
    ]


@pytest.mark.parametrize("count", [1, 2, 3])
def test_codec_reads_what_it_wrote(count: int) -> None:
    """Also if readings need several messages."""
    codec, readings = PduCodec(), Readings([READING] * count)
    written = list(codec.encode(readings, SUBJECTS, Packing(2, 10**6, 10**6)))
    assert len(written) == -(-count // 2)
    read = [part for part, _ in codec.decode([Payload(payload) for _, payload in written])]
    assert Readings.concat(read) == readings
