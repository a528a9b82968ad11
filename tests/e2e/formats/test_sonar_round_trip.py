"""Sonar to line protocol and back: nothing is lost, whatever the envelope says."""

import itertools

from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from ccpipe.formats.lineprotocol import RejectedLine, decode, encode
from ccpipe.formats.sonar import Envelope, ExtendedUint, SampleGpu, SampleProcess
from ccpipe.formats.sonar.envelopes import Envelopes
from ccpipe.translate.sonar.cc_to_sonar import CcToSonar
from ccpipe.translate.sonar.sonar_to_cc import SonarToCc, about
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


@settings(max_examples=200)
@given(st.lists(envelopes, max_size=3), st.lists(st.integers(1, 3), min_size=1, max_size=3))
@example([sample(used_memory=2**64 - 1, existing_entities=2**64 - 1024)], [1])
@example([sample(jobs=(job(SampleProcess(rolledup=-3, num_threads=1)),))], [1])
@example([sample(gpus=(SampleGpu(uuid="0", performance_state=ExtendedUint(2**64 - 3)),))], [1])
def test_what_comes_back_is_what_went(given_: list[Envelope], sizes: list[int]) -> None:
    """Every field of every valid envelope, in order, with nothing made up beside it.

    Of the metrics beside it only sums are refused that are more than a field can hold.
    """
    returned, rejected = there_and_back(given_, sizes)
    assert returned == given_
    for bad in rejected:
        [metric] = decode(bad.original)
        assert float(metric.value) >= 2**64


@given(envelopes)
def test_an_event_with_the_envelope_is_needed_for_that(envelope: Envelope) -> None:
    """Without it envelopes come back too, but only about the same clusters and kinds."""
    lines = decode(encode(SonarToCc(envelopes=False).feed(Envelopes([envelope])), precision="auto"))
    assert not any(message.name == "sonar" and message.field == "event" for message in lines)
    back = CcToSonar()
    returned = back.feed(lines) + back.flush()
    assert {about(e).kind for e in returned} <= {about(envelope).kind}


def test_the_same_moment_on_another_node_is_not_left_out() -> None:
    """What a whole envelope replaces is what tells of its own node and moment only."""
    one, two = sample(node="c1"), sample(node="c2")
    lines = SonarToCc().feed(Envelopes([one]))
    plain = SonarToCc(envelopes=False).feed(Envelopes([two]))
    back = CcToSonar()
    returned = back.feed(lines) + back.feed(plain) + back.flush()
    assert returned[0] == one
    assert [about(e).node for e in returned] == ["c1", "c2"]
    assert returned[1] != replace(two)
