"""``Payloads``: lines of several payloads as one sequence."""

import pytest

from ccpipe.formats.lineprotocol import Lines, Messages, decode
from ccpipe.sinks.parquet.records import Payloads, payloads_of
from tests.sinks.conftest import metric


def payload(*values: int) -> Lines:
    """Return decoded lines of some values."""
    return decode(b"".join(b"m,cluster=c value=%d 1740052800\n" % value for value in values))


WHOLE = Payloads.concat([payload(0, 1, 2), payload(3), payload(4, 5)])


def test_it_is_a_sequence_of_messages() -> None:
    """Length, rows and lines are those of the payloads, one after another."""
    assert isinstance(WHOLE, Payloads)
    assert len(WHOLE) == 6
    assert [message.value for message in WHOLE] == [0, 1, 2, 3, 4, 5]
    assert [WHOLE[row].value for row in (0, 3, 5, -1)] == [0, 3, 5, 5]
    assert WHOLE.original(4) == b"m,cluster=c value=4.0 1740052800"
    assert WHOLE.size == sum(part.size for part in WHOLE.parts)
    with pytest.raises(IndexError):
        WHOLE[6]


@pytest.mark.parametrize("at", range(7))
def test_halves(at: int) -> None:
    """Cut anywhere, as a rejected batch is, both pieces have their rows."""
    assert isinstance(WHOLE, Payloads)
    first, second = WHOLE[:at], WHOLE[at:]
    assert [message.value for message in first] == list(range(at))
    assert [message.value for message in second] == list(range(at, 6))
    assert list(Payloads.of(first)) == list(first)


def test_rejected_lines_stay() -> None:
    """What could not be read is that of all payloads."""
    whole = Payloads.concat([decode(b"bad\n"), payload(1), decode(b"worse\n")])
    assert [each.original for each in whole.rejected] == [b"bad", b"worse"]


def test_messages_among_them() -> None:
    """Records that were never lines are joined as they always were."""
    mixed = Payloads.concat([payload(1), Messages([metric(2.0)])])
    assert isinstance(mixed, Messages)
    assert [message.value for message in mixed] == [1.0, 2.0]
    ((lines),) = payloads_of(mixed)
    assert isinstance(lines, Lines)
    assert [message.value for message in lines] == [1.0, 2.0]
