"""Ids of messages that JetStream delivered, read from the subjects that acknowledge them."""

from array import array
from typing import Any

from ccpipe.bus.nats.protocol.replies import stored
from ccpipe.pipeline import Batch, MessageIds


def give_ids(batch: Batch, consumer: str, replies: list[str]) -> None:
    """Let a batch tell the ids of its messages, which are acknowledged at `replies`.

    `consumer` is what numbers belong to: nothing is read before somebody asks.
    """
    ends_of = batch.ends_of  # the batch itself would be a circle, and its memory freed late

    def ids_of(records: Any) -> MessageIds | None:
        ends = ends_of(records) if ends_of else array("q", [len(records)])
        if ends is None or len(ends) != len(replies):
            return None
        found = stored(replies)
        return found and MessageIds([consumer] * len(ends), *found, ends)

    batch.ids_of = ids_of
