"""Sonar to line protocol and back: nothing is lost, whatever the envelope says."""

import itertools

from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from ccpipe.formats.lineprotocol import decode, encode
from ccpipe.formats.sonar import Envelope, ExtendedUint, SampleGpu
from ccpipe.translate.sonar.cc_to_sonar import CcToSonar
from ccpipe.translate.sonar.sonar_to_cc import SonarToCc, about
from tests.formats.sonar.strategies import envelopes
from tests.translate.sonar.sonar_samples import sample


def there_and_back(
    given_: list[Envelope], sizes: list[int] | None = None
) -> tuple[list[Envelope], SonarToCc, CcToSonar]:
    """Translate envelopes to line protocol, as bytes, and back; in several feeds each way."""
    there, back = SonarToCc(), CcToSonar()
    returned: list[Envelope] = []
    pieces, rest = itertools.cycle(sizes or [len(given_) or 1]), given_
    while rest:
        size = next(pieces)
        lines = decode(encode(there.feed(rest[:size]), precision="auto"))
        assert lines.rejected == []
        returned += back.feed(lines)
        rest = rest[size:]
    return returned + back.flush(), there, back


@settings(max_examples=200)
@given(st.lists(envelopes, max_size=3), st.lists(st.integers(1, 3), min_size=1, max_size=3))
@example([sample(used_memory=2**64 - 1, existing_entities=2**64 - 1024)], [1])
@example([sample(gpus=(SampleGpu(uuid="0", performance_state=ExtendedUint(2**64 - 3)),))], [1])
def test_what_comes_back_is_what_went(given_: list[Envelope], sizes: list[int]) -> None:
    """Every field of every valid envelope, in order, with nothing made up beside it.

    Of the metrics beside it only sums are refused that are more than a field can hold.
    """
    returned, there, back = there_and_back(given_, sizes)
    assert returned == given_
    assert not there.take_rejected()
    assert all(float(metric.value) > 2**64 for metric, _ in back.take_rejected())


@given(envelopes)
def test_an_event_with_the_envelope_is_needed_for_that(envelope: Envelope) -> None:
    """Without it envelopes come back too, but only about the same clusters and kinds."""
    lines = decode(encode(SonarToCc(envelopes=False).feed([envelope]), precision="auto"))
    assert not any(message.name == "sonar" and message.field == "event" for message in lines)
    back = CcToSonar()
    returned = back.feed(lines) + back.flush()
    assert {about(e).kind for e in returned} <= {about(envelope).kind}


def test_the_same_moment_on_another_node_is_not_left_out() -> None:
    """What a whole envelope replaces is what tells of its own node and moment only."""
    one, two = sample(node="c1"), sample(node="c2")
    lines = SonarToCc().feed([one])
    plain = SonarToCc(envelopes=False).feed([two])
    back = CcToSonar()
    returned = back.feed(lines) + back.feed(plain) + back.flush()
    assert returned[0] == one
    assert [about(e).node for e in returned] == ["c1", "c2"]
    assert returned[1] != replace(two)
