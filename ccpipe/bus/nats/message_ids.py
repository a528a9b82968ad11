"""Ids of messages that JetStream delivered, parsed from their reply subjects."""

from array import array
from typing import Any

from ccpipe.bus.nats.protocol.replies import stored
from ccpipe.pipeline import Batch, MessageIds


def give_ids(batch: Batch, consumer: str, replies: list[str]) -> None:
    """Attach message ids to a batch, parsed on demand from its reply subjects.

    `consumer` identifies the consumer that the numbers belong to.
    """
    ends_of = batch.ends_of  # a reference to the batch would be a cycle, and its memory freed late

    def ids_of(records: Any) -> MessageIds | None:
        ends = ends_of(records) if ends_of else array("q", [len(records)])
        if ends is None or len(ends) != len(replies):
            return None
        found = stored(replies)
        return found and MessageIds([consumer] * len(ends), *found, ends)

    batch.ids_of = ids_of
