"""Codecs meet one protocol, whoever brings them: any broker can carry any payload."""

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
    """What a broker hands over."""

    subject: str
    payload: bytes
    arrival: int = 0


def codec(name: str) -> Codec[Any]:
    made: Codec[Any] = find("codecs", name, "test")()
    return made


def test_every_codec_is_tested_here() -> None:
    """A new one joins by its records."""
    assert set(entry_points("codecs")) == set(RECORDS)


@pytest.mark.parametrize("name", RECORDS)
def test_what_is_encoded_is_what_is_decoded(name: str) -> None:
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
def test_a_record_beyond_the_brokers_limit_is_refused(name: str) -> None:
    with pytest.raises((RejectedError, EncodeError)):
        list(codec(name).encode(RECORDS[name], SUBJECTS, Packing(lines=1, size=8, limit=8)))


@pytest.mark.parametrize("name", RECORDS)
def test_bytes_that_are_none_are_rejected_and_not_raised(name: str) -> None:
    good = next(iter(codec(name).encode(RECORDS[name], SUBJECTS, Packing(500, 2**16, 2**20))))
    messages = [Delivered("a", b"\xff{"), Delivered(*good)]
    batches = [batch for batch, _ in codec(name).decode(messages)]
    assert sum(len(batch.rejected) for batch in batches) == 1
    assert sum(len(batch) for batch in batches) >= 1
