"""Several translators as one that can be exchanged while their pipe runs."""

from collections.abc import Sequence
from typing import Any

from ccpipe.pipeline.plug import Translator, join


class Chain:
    """Has records pass translators in their order."""

    def __init__(self, translators: Sequence[Translator]) -> None:
        """Begin with these."""
        self.refused: list[tuple[Any, str]] = []
        self._translators = list(translators)
        self._left: list[Any] = []  # what those that were exchanged held to the end

    @property
    def holds(self) -> int:
        """Of how many of the latest feeds they may hold something; see ``Holding``."""
        return sum(getattr(translator, "holds", 0) for translator in self._translators)

    def exchange(self, translators: Sequence[Translator]) -> None:
        """Go on with others; what those before held comes out with the next feed."""
        self._left.append(self._flushed())
        self._translators = list(translators)

    def feed(self, records: Any) -> Any:
        """Return what left the last translator."""
        for translator in self._translators:
            records = translator.feed(records)
            self._take_refused(translator)
        left, self._left = self._left, []
        return join([*left, records]) if left else records

    def flush(self) -> Any:
        """Return what is still held."""
        left, self._left = self._left, []
        return join([*left, self._flushed()])

    def _flushed(self) -> Any:
        records: Any = ()
        for translator in self._translators:
            records = join([translator.feed(records), translator.flush()])
            self._take_refused(translator)
        return records

    def _take_refused(self, translator: Translator) -> None:
        refused = getattr(translator, "refused", None)
        if refused:
            self.refused += refused
            refused.clear()
