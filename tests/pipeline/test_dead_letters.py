"""Dead letters of what could not be read."""

from ccpipe.formats.lineprotocol import decode
from ccpipe.pipeline import DeadLetter, run
from ccpipe.pipeline.dead_letters import AT_ONCE, chunks
from ccpipe.telemetry import Telemetry
from tests.pipeline.parts import ListDeadLetterSink, ListSink, ListSource, play


def test_a_payload_of_bad_lines_makes_a_bounded_number_of_letters() -> None:
    """Nothing of it is lost: the last letter holds the lines that have none of their own."""
    telemetry = Telemetry()
    payload = b"".join(b"bad%d\n" % n for n in range(5000))
    source, kept = ListSource([decode(payload)]), ListDeadLetterSink()
    play(run(source, ListSink(), dead_letter_sink=kept, telemetry=telemetry))
    assert len(kept.letters) == 101
    assert b"\n".join(letter.original for letter in kept.letters) + b"\n" == payload
    last = kept.letters[-1]
    assert (last.line, last.lines) == (101, 4900)
    assert "4900 more lines that could not be read, the first: " in last.reason
    assert telemetry.total(telemetry.dead) == 5000
    assert source.acked == [0]


def test_letters_are_written_some_at_a_time() -> None:
    """Each once, in their order."""
    letters = [DeadLetter(b"%d" % n, "no") for n in range(2 * AT_ONCE + 1)]
    found = list(chunks(letters))
    assert [len(portion) for portion in found] == [AT_ONCE, AT_ONCE, 1]
    assert [letter for portion in found for letter in portion] == letters
