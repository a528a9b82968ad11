"""All codecs implement one protocol: any broker can transport any payload."""

from typing import Any, NamedTuple

import pytest

from ccpipe.bus.codecs import Codec, Packing
from ccpipe.bus.subjects import Subjects
from ccpipe.config import Site
from ccpipe.errors import EncodeError, RejectedError
from ccpipe.formats.lineprotocol import to_lines
from ccpipe.formats.sonar import Envelopes
from ccpipe.message import metric
from ccpipe.registry import entry_points, find
from tests.bus.envelopes import JOBS, SAMPLE

SUBJECTS = Subjects.of(Site(cluster="fox.no", hostname="n1"))
TAGS = {"cluster": "fox.no", "hostname": "n1"}
METRICS = [metric("m", float(n), time=1_740_052_800 * 10**9, tags=TAGS) for n in range(40)]
RECORDS: dict[str, Any] = {"line": to_lines(METRICS), "sonar": Envelopes([SAMPLE, JOBS])}


class Delivered(NamedTuple):
    """A message as delivered by a broker."""

    subject: str
    payload: bytes
    arrival: int = 0


def codec(name: str) -> Codec[Any]:
    made: Codec[Any] = find("codecs", name, "test")()
    return made


def test_every_codec_is_tested_here() -> None:
    """A new codec is added with its records."""
    assert set(entry_points("codecs")) == set(RECORDS)


@pytest.mark.parametrize("name", RECORDS)
def test_codec_decodes_what_it_encoded(name: str) -> None:
    """In order; payloads stay below the size, and every message is accounted for."""
    packing = Packing(lines=7, size=2**16, limit=2**20)
    encoded = list(codec(name).encode(RECORDS[name], SUBJECTS, packing))
    messages = [Delivered(subject, payload) for subject, payload in encoded]
    assert all(message.subject.startswith("fox%2Eno.") for message in messages)
    found: list[object] = []
    count = 0
    for batch, used in codec(name).decode(messages):
        found += batch
        count += used
    assert (found, count) == (list(RECORDS[name]), len(messages))


@pytest.mark.parametrize("name", RECORDS)
def test_codec_rejects_record_beyond_size_limit(name: str) -> None:
    with pytest.raises((RejectedError, EncodeError)):
        list(codec(name).encode(RECORDS[name], SUBJECTS, Packing(lines=1, size=8, limit=8)))


@pytest.mark.parametrize("name", RECORDS)
def test_codec_rejects_invalid_bytes_without_raising(name: str) -> None:
    good = next(iter(codec(name).encode(RECORDS[name], SUBJECTS, Packing(500, 2**16, 2**20))))
    messages = [Delivered("a", b"\xff{"), Delivered(*good)]
    batches = [batch for batch, _ in codec(name).decode(messages)]
    assert sum(len(batch.rejected) for batch in batches) == 1
    assert sum(len(batch) for batch in batches) >= 1
