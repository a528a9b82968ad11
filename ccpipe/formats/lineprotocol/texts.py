"""The strings of a payload, by their place in it."""

from array import array
from collections.abc import Iterable, Mapping, Sequence
from typing import overload

from ccpipe.formats.lineprotocol.grammar import STRING_ESCAPE
from ccpipe.formats.lineprotocol.kernel import KERNEL

TEXT = 4
"""The number of ``ValueType.TEXT``."""

_OWN = -1  # stands for a start where a text is none of the payload's


class Texts(Sequence[str]):
    """Texts that stay bytes of the payload until one is asked for, which is then unescaped.

    So a payload of long logs that only passes through is never decoded, and holds no memory twice.
    """

    __slots__ = ("own", "payload", "spans", "unescape")

    def __init__(self, payload: bytes, unescape: Mapping[str, str]) -> None:
        """Start empty; `unescape` says what a backslash means before a character."""
        self.payload = payload
        self.unescape = unescape
        self.spans = array("q")
        """For each text where it begins and ends inside its quotes; or -1 and its place in own."""
        self.own: list[str] = []
        """Texts that stand in no payload: of repaired lines and of rows that were added."""

    def __len__(self) -> int:
        return len(self.spans) // 2

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        if not 0 <= index < len(self):
            raise IndexError(index)
        start, end = self.spans[2 * index], self.spans[2 * index + 1]
        if start == _OWN:
            return self.own[end]
        text = self.payload[start:end].decode()
        return self.unescaped(text) if "\\" in text else text

    def unescaped(self, text: str) -> str:
        """Undo the escapes of a text."""
        unescape = self.unescape
        return STRING_ESCAPE.sub(lambda found: unescape.get(found[1], found[0]), text)

    def append(self, text: str) -> None:
        """Add a text that stands in no payload."""
        self.spans.extend((_OWN, len(self.own)))
        self.own.append(text)

    def forget(self, after: int) -> None:
        """Let go all texts but the first `after`."""
        del self.spans[2 * after :]

    def extend(self, texts: Iterable[str], offset: int = 0) -> None:
        """Add texts; those of a payload that is now ours at `offset` stay where they are."""
        if not isinstance(texts, Texts) or texts.unescape is not self.unescape:
            for text in texts:
                self.append(text)
            return
        if not texts.own:
            self.spans.extend(shifted(texts.spans, offset))
            return
        own = len(self.own)
        self.own.extend(texts.own)
        spans = iter(texts.spans)
        for start, end in zip(spans, spans, strict=True):
            owned = start == _OWN
            self.spans.extend((_OWN, end + own) if owned else (start + offset, end + offset))


def shifted(column: "array[int]", by: int, types: "array[int] | None" = None) -> "array[int]":
    """Copy a column with `by` added: to all rows, or where `types` are given to the texts."""
    if KERNEL is not None:
        moved: array[int] = KERNEL.shifted(column, by, types, TEXT)
        return moved
    if types is None:
        return array("q", map(by.__add__, column))
    return array("q", [x + by * (t == TEXT) for x, t in zip(column, types, strict=True)])
