"""Ids of messages that JetStream delivered, read from the subjects that acknowledge them."""

from array import array
from collections.abc import Sequence
from typing import Any

from ccpipe.pipeline import Batch, MessageIds

_WITHOUT_DOMAIN = 9
"""Tokens of an acknowledgement's subject; newer servers put domain and account before them."""


def give_ids(batch: Batch, consumer: str, replies: Sequence[str]) -> None:
    """Let a batch tell the ids of its messages, which are acknowledged at `replies`.

    `consumer` is what numbers belong to: nothing is read before somebody asks.
    """
    ends_of = batch.ends_of  # the batch itself would be a circle, and its memory freed late

    def ids_of(records: Any) -> MessageIds | None:
        ends = ends_of(records) if ends_of else [len(records)]
        if ends is None or len(ends) != len(replies):
            return None
        numbers, times = array("q"), array("q")
        for reply in replies:
            tokens = reply.split(".")
            # $JS.ACK[.domain.account].stream.consumer.deliveries.number.place.time.pending[.token]
            place = 5 if len(tokens) == _WITHOUT_DOMAIN else 7
            found = tokens[place : place + 3 : 2]
            if tokens[1:2] != ["ACK"] or len(found) != 2 or not all(map(str.isdecimal, found)):  # noqa: PLR2004
                return None
            numbers.append(int(found[0]))
            times.append(int(found[1]))
        return MessageIds([consumer] * len(ends), numbers, times, array("q", ends))

    batch.ids_of = ids_of
