"""What passes between the parts."""

from ccpipe.pipeline import Batch, DeadLetter
from tests.pipeline.parts import play


def test_a_batch_has_an_upstream_where_it_can_be_acknowledged() -> None:
    """Without an ``ack`` nobody would hand the batch over again; calling it does no harm."""

    async def ack() -> None:
        pass

    alone = Batch([])
    assert not alone.has_upstream
    assert Batch([], ack).has_upstream
    play(alone.ack())


def test_a_dead_letter_in_a_log_says_where_why_and_what() -> None:
    """One line, bounded however long the original is; no place where a store refused a record."""
    unreadable = DeadLetter(b"x" * 1000, "no field", "fox.metrics", line=3, offset=70)
    text = str(unreadable)
    assert text.startswith("dead letter from fox.metrics line 3, offset 70: no field: b'xxx")
    assert len(text) < 200
    assert str(DeadLetter(b"a\nb", "too old")) == r"dead letter from ?: too old: b'a\nb'"
