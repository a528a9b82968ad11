"""Ids of messages, read from the subjects that acknowledge them."""

import pytest

from ccpipe.bus.codecs.line import LineCodec
from ccpipe.bus.nats.connection import Delivery
from ccpipe.bus.nats.message_ids import give_ids
from ccpipe.formats.lineprotocol import Lines
from ccpipe.pipeline import Batch, MessageIds

OLD = "$JS.ACK.stream.durable.1.{number}.9.{time}.0"
NEW = "$JS.ACK._.hash.stream.durable.1.{number}.9.{time}.0"
TOKEN = NEW + ".token"


def given(batch: Batch, replies: list[str]) -> MessageIds | None:
    """Return the ids of a batch, which is acknowledged at `replies`."""
    give_ids(batch, "c", replies)
    assert batch.ids_of is not None
    return batch.ids_of(batch.records)


@pytest.mark.parametrize("form", [OLD, NEW, TOKEN])
def test_every_form_of_the_subject(form: str) -> None:
    """Number and time stand in other places where the server names domain and account."""
    ids = given(Batch([1, 2, 3]), [form.format(number=7, time=1740052800)])
    assert ids is not None
    assert (ids.consumers, list(ids.numbers), list(ids.times), list(ids.ends)) == (
        ["c"],
        [7],
        [1740052800],
        [3],
    )


@pytest.mark.parametrize(
    "reply",
    ["", "_INBOX.x", "$JS.ACK", OLD.format(number="x", time=1), OLD.format(number=1, time="")],
)
def test_what_is_no_acknowledgement(reply: str) -> None:
    """Messages of a plain subscription, or hostile ones, have no id."""
    assert given(Batch([1]), [reply]) is None


def test_payloads_that_were_joined() -> None:
    """Each line belongs to its message, also after rules have taken lines away."""
    payloads = [b"a value=1 1\nb value=2 1\n", b"a value=3 1", b"", b"b value=4 1\na value=5 1\n"]
    replies = [OLD.format(number=n, time=n) for n in range(len(payloads))]
    deliveries = [
        Delivery("s", payload, b"", reply) for payload, reply in zip(payloads, replies, strict=True)
    ]
    ((batch, count),) = LineCodec().decode(deliveries)
    assert count == len(payloads)
    ids = given(batch, replies)
    assert ids is not None
    assert list(ids.ends) == [2, 3, 3, 5]
    assert isinstance(batch.records, Lines)
    assert batch.ids_of is not None
    thinned = batch.ids_of(batch.records.take([m.name == "a" for m in batch.records]))
    assert thinned is not None
    assert list(thinned.ends) == [1, 2, 2, 3]
    assert batch.ids_of(list(batch.records)) is None  # nobody knows what became of which
