"""Sonar to line protocol and back, without loss for any envelope.

For any input the translators return or reject records, without other exceptions.
"""

import itertools
import json
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace

from ccpipe.formats.lineprotocol import RejectedLine, decode, encode, to_lines
from ccpipe.formats.sonar import Envelope, ExtendedUint, SampleGpu, SampleProcess
from ccpipe.formats.sonar import decode as decode_sonar
from ccpipe.formats.sonar import encode as encode_sonar
from ccpipe.formats.sonar.envelopes import Envelopes
from ccpipe.message import Message, Uint
from ccpipe.records import Rejected
from ccpipe.translate.sonar.cc_to_sonar import CcToSonar
from ccpipe.translate.sonar.sonar_to_cc import SonarToCc, envelope_id
from scripts import sonar_pages
from tests.formats.sonar.strategies import envelopes
from tests.translate.sonar.sonar_samples import job, sample


def there_and_back(
    given_: list[Envelope], sizes: list[int] | None = None
) -> tuple[list[Envelope], list[RejectedLine]]:
    """Translate envelopes to line protocol, as bytes, and back; in several feeds each way."""
    there, back = SonarToCc(), CcToSonar()
    returned: list[Envelope] = []
    rejected: list[RejectedLine] = []
    pieces, rest = itertools.cycle(sizes or [len(given_) or 1]), given_
    while rest:
        size = next(pieces)
        made = there.feed(Envelopes(rest[:size]))
        lines = decode(encode(made, precision="auto"))
        assert not lines.rejected
        assert not made.rejected
        found = back.feed(lines)
        returned += found
        rejected += found.rejected
        rest = rest[size:]
    return returned + back.flush(), rejected


@given(st.lists(envelopes, max_size=3), st.lists(st.integers(1, 3), min_size=1, max_size=3))
@example([sample(used_memory=2**64 - 1, existing_entities=2**64 - 1024)], [1])
@example([sample(jobs=(job(SampleProcess(rolledup=-3, num_threads=1)),))], [1])
@example([sample(gpus=(SampleGpu(uuid="0", performance_state=ExtendedUint(2**64 - 3)),))], [1])
def test_round_trip_restores_every_envelope(given_: list[Envelope], sizes: list[int]) -> None:
    """Every field of every valid envelope is restored in order, without additions.

    Of the other metrics only sums beyond the range of a field are rejected.
    """
    returned, rejected = there_and_back(given_, sizes)
    assert returned == given_
    for bad in rejected:
        [metric] = decode(bad.original)
        assert float(metric.value) >= 2**64


@given(envelopes)
def test_round_trip_without_event_restores_clusters_and_kinds(envelope: Envelope) -> None:
    """Without the event with the whole envelope, only clusters and kinds are the same."""
    lines = decode(encode(SonarToCc(envelopes=False).feed(Envelopes([envelope])), precision="auto"))
    assert not any(message.name == "sonar" and message.field == "event" for message in lines)
    back = CcToSonar()
    returned = back.feed(lines) + back.flush()
    assert {envelope_id(e).kind for e in returned} <= {envelope_id(envelope).kind}


def test_whole_envelope_replaces_lines_of_its_node_and_time_only() -> None:
    one, two = sample(node="c1"), sample(node="c2")
    lines = SonarToCc().feed(Envelopes([one]))
    plain = SonarToCc(envelopes=False).feed(Envelopes([two]))
    back = CcToSonar()
    returned = back.feed(lines) + back.feed(plain) + back.flush()
    assert returned[0] == one
    assert [envelope_id(e).node for e in returned] == ["c1", "c2"]
    assert returned[1] != replace(two)


INVALID_VALUES: st.SearchStrategy[Any] = st.sampled_from(
    ["", "x\ny\\", "c[1-", "2999-01-01T00:00:00Z", 0, 1, 2**64 - 1, None, [], {}]
)


def damaged_value(value: Any, draw: Any) -> Any:
    if draw(st.integers(0, 12)) == 0:
        return draw(INVALID_VALUES)
    if isinstance(value, dict):
        return {key: damaged_value(item, draw) for key, item in value.items()}
    if isinstance(value, list):
        return [damaged_value(item, draw) for item in value]
    return value


@st.composite
def archives(draw: Any) -> bytes:
    """Return a stream of envelopes with some invalid values."""
    trees = [json.loads(encode_sonar(draw(envelopes))) for _ in range(draw(st.integers(1, 3)))]
    return b"\n".join(json.dumps(damaged_value(tree, draw)).encode() for tree in trees)


@given(archives(), st.booleans())
def test_translator_accepts_any_decodable_envelope(archive: bytes, whole: bool) -> None:
    """The lines can be encoded and decoded; rejections are reported."""
    translator = SonarToCc(envelopes=whole, all_jobs=True)
    read = decode_sonar(archive)
    made = translator.feed(read)
    lines = decode(encode(made, precision="auto"))
    assert lines.rejected == []
    back = CcToSonar()
    found = back.feed(lines.fill_missing_times(0))
    returned = found + back.flush()
    if whole:
        assert len(returned) + len(found.rejected) >= len(read)
        assert [e for e in returned if e in read] == read or found.rejected or made.rejected


names = st.sampled_from(
    [row.name for _, _, rows, _ in sonar_pages.SECTIONS for row in rows]
    + ["nv_util", "load_one", "sonar", "job", "nodestate", "topology", "other"]
)
words = st.sampled_from(["node", "accelerator", "job", "device", "7", "7.9", "7.", "x", "GPU-1"])
keys = st.sampled_from(["type", "type-id", "stype", "stype-id", "user", "cluster", "function"])
payloads = st.one_of(
    st.text(max_size=5),
    st.fixed_dictionaries(
        {},
        optional={
            "jobId": st.integers(-1, 2**70),
            "user": st.text(max_size=3),
            "cluster": st.text(max_size=3),
            "startTime": st.integers(-(2**70), 2**70),
            "stopTime": st.integers(-1, 2**70),
            "numNodes": st.integers(-1, 2),
            "resources": st.lists(st.fixed_dictionaries({"hostname": st.text(max_size=3)})),
            "walltime": st.integers(-(2**70), 2**70),
            "nodes": st.lists(st.fixed_dictionaries({"hostname": st.text(max_size=3)})),
            "hostname": st.just("c1"),
            "metaData": st.dictionaries(st.sampled_from(["hetJobId", "jobName"]), st.text()),
        },
    ).map(json.dumps),
)
values = st.one_of(
    st.floats(),
    st.integers(-(2**63), 2**63 - 1),
    st.integers(0, 2**64 - 1).map(Uint),
    st.booleans(),
    payloads,
)
messages = st.builds(
    Message,
    names,
    st.dictionaries(keys, words).map(lambda tags: {**tags, "hostname": "c1"}),
    values,
    st.one_of(st.none(), st.integers(-(2**63) + 1, 2**63 - 1), st.sampled_from([0, 10**9])),
    st.sampled_from(["value", "event", "log"]),
)


@given(st.lists(messages, max_size=12))
def test_translator_accepts_any_lines(given_: list[Message]) -> None:
    """Each becomes part of an envelope, is ignored, or is rejected."""
    translator = CcToSonar()
    rejected: list[Rejected] = []
    for start in range(0, len(given_), 3):
        lines = to_lines(given_[start : start + 3])
        rejected += [*lines.rejected, *translator.feed(lines).rejected]
    translator.flush()
    assert translator.oldest_held() is None
    assert all(b"c1" in bad.original and bad.reason for bad in rejected)
