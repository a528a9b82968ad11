"""A translator at work, and the batches that it still holds something of.

A batch must not be acknowledged while a translator holds a part of it. Each stage therefore
remembers which batches came with its latest feeds, and lets them go together with the records
that make the last of them safe. Batches go from stage to stage as their records do.
"""

from collections import deque
from collections.abc import Sequence
from typing import Any

from ccpipe.errors import EncodeError
from ccpipe.formats.lineprotocol import encode
from ccpipe.message import Message
from ccpipe.pipeline.plug import Batch, DeadLetter, Holding, Remembering, Translator


class Stage:
    """One translator of a pipe."""

    def __init__(self, translator: Translator) -> None:
        """Begin without having fed it."""
        self.translator = translator
        self.is_holding = isinstance(translator, Holding)
        self._remembering = translator if isinstance(translator, Remembering) else None
        self._feeds: deque[list[Batch]] = deque()  # the latest, oldest first
        self.letters: list[DeadLetter] = []
        """What the translator refused since somebody last took it."""

    def feed(self, records: Any, batches: list[Batch], origin: str) -> tuple[Any, list[Batch]]:
        """Feed records that complete `batches`; return those that are ready and all that they do.

        A batch is complete with the last record that came of it.
        """
        ready = self.translator.feed(records)
        if self._remembering is not None:
            for batch in batches:
                batch.notes.append((self._remembering, self._remembering.given))
        self._feeds.append(batches)
        held = self.translator.holds if isinstance(self.translator, Holding) else 0
        return ready, self._let_go(held, origin)

    def flush(self, origin: str) -> tuple[Any, list[Batch]]:
        """Return what is still held, and the batches that it completes."""
        ready = self.translator.flush()
        return ready, self._let_go(0, origin)

    def _let_go(self, held: int, origin: str) -> list[Batch]:
        refused: list[tuple[Any, str]] = getattr(self.translator, "refused", [])
        self.letters += [to_dead_letter(record, reason, origin) for record, reason in refused]
        refused.clear()
        complete: list[Batch] = []
        while len(self._feeds) > held:
            complete += self._feeds.popleft()
        return complete


def to_dead_letter(record: object, reason: str, origin: str) -> DeadLetter:
    """Spell a record that could be read but not written as it travels, if it can be spelled."""
    try:
        original = _spelled(record)
    except EncodeError:
        original = repr(record).encode()
    return DeadLetter(original, reason, origin)


def _spelled(record: object) -> bytes:
    if isinstance(record, Message):
        return encode([record], precision="auto").rstrip(b"\n")
    from ccpipe.formats import sonar

    if isinstance(record, sonar.Envelope):
        return sonar.encode(record).rstrip(b"\n")
    return repr(record).encode()


def note_written(batches: Sequence[Batch]) -> None:
    """Tell translators that remember which of their feeds is the latest that is safe."""
    latest = {id(translator): (translator, given) for b in batches for translator, given in b.notes}
    for translator, given in latest.values():
        translator.written(given)


async def acknowledge(batches: Sequence[Batch]) -> None:
    """Acknowledge batches, in their order."""
    for batch in batches:
        await batch.ack()
