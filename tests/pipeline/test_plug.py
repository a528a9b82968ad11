"""What passes between the parts."""

from ccpipe.formats.lineprotocol import Lines, decode
from ccpipe.pipeline import Batch, DeadLetter, join
from tests.pipeline.parts import made, play, values


def lines(*numbers: int) -> Lines:
    """Decode one metric for each number, which is its value."""
    return decode(b"".join(b"m value=%d\n" % number for number in numbers))


def test_columns_joined_stay_columns() -> None:
    """Lines that are joined are Lines again, in their order."""
    whole = join([lines(1, 2), lines(3)])
    assert isinstance(whole, Lines)
    assert values(whole) == [1, 2, 3]


def test_messages_joined_keep_their_order() -> None:
    """Messages and Lines together become messages."""
    assert values(join([made(1), lines(2), made(3)])) == [1, 2, 3]


def test_an_empty_batch_costs_nobody_their_columns() -> None:
    """A translator that drops everything hands on an empty list: what it joins stays columns."""
    whole = join([[], lines(1), [], lines(2)])
    assert isinstance(whole, Lines)
    assert values(whole) == [1, 2]


def test_nothing_joined_is_nothing() -> None:
    """There need be no parts, nor anything in them."""
    assert len(join([])) == len(join([[], Lines()])) == 0


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
