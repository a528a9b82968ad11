"""Values of line protocol: types, texts, and cells in the columns of ``Lines``."""

import enum
import math
import re
from array import array
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeGuard, overload

from ccpipe.errors import EncodeError
from ccpipe.formats.lineprotocol.grammar import STRING_ESCAPE
from ccpipe.formats.lineprotocol.kernel import KERNEL
from ccpipe.formats.lineprotocol.precision import INT64_MAX, INT64_MIN
from ccpipe.message import Uint, Value


class ValueType(enum.IntEnum):
    """Type of a value as written: the cells of the column ``Lines.types``."""

    FLOAT = 0
    INT = 1
    UINT = 2
    BOOL = 3
    TEXT = 4


IS_NUMBER = [kind in (ValueType.FLOAT, ValueType.INT, ValueType.UINT) for kind in ValueType]
"""Result of `is_number` by type."""


def is_number(value: Value) -> TypeGuard[float]:
    """Return whether a value is a number; booleans are not."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def cells(value: Value) -> tuple[float, int, ValueType]:
    """Return the cells of a value: ``numbers``, ``exact`` and ``types``; a text's ``exact`` is 0.

    Raises EncodeError for values that line protocol cannot represent: non-finite numbers,
    integers beyond 64 bits, texts with lone surrogates.
    """
    match value:
        case bool():
            return float(value), int(value), ValueType.BOOL
        case Uint() if 0 <= value < 2**64:
            return float(value), signed(value), ValueType.UINT
        case int() if not isinstance(value, Uint) and INT64_MIN <= value <= INT64_MAX:
            return float(value), value, ValueType.INT
        case float() if math.isfinite(value):
            return value, 0, ValueType.FLOAT
        case str():
            if re.search(_SURROGATE, value):
                raise EncodeError(f"{value!r:.80} contains a lone surrogate")
            return math.nan, 0, ValueType.TEXT
        case _:
            raise EncodeError(f"{value!r:.80} is not a valid value in line protocol")


def signed(unsigned: int) -> int:
    """Return the 64 bits of an unsigned integer as a signed one."""
    return unsigned - 2**64 if unsigned > INT64_MAX else unsigned


_SURROGATE = "[\ud800-\udfff]"


_OWN = -1  # in place of a start: the text is not in the payload


class Texts(Sequence[str]):
    """Texts, stored as positions in the payload and unescaped on access.

    Long logs that only pass through are neither decoded nor stored twice.
    """

    __slots__ = ("own", "payload", "spans", "unescape")

    def __init__(self, payload: bytes, unescape: Mapping[str, str]) -> None:
        """Start empty; `unescape` maps each escaped character to its meaning."""
        self.payload = payload
        self.unescape = unescape
        self.spans = array("q")
        """Start and end of each text within its quotes; or -1 and its index in ``own``."""
        self.own: list[str] = []
        """Texts outside the payload: of repaired lines and added rows."""

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
        unescape = self.unescape
        return STRING_ESCAPE.sub(lambda found: unescape.get(found[1], found[0]), text)

    def append(self, text: str) -> None:
        self.spans.extend((_OWN, len(self.own)))
        self.own.append(text)

    def truncate(self, size: int) -> None:
        del self.spans[2 * size :]

    def extend(self, texts: Iterable[str], offset: int = 0) -> None:
        """Add texts; texts in a payload that is part of ours, at `offset`, stay undecoded."""
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
    """Return a column with `by` added: to all rows, or, with `types`, to texts only."""
    if KERNEL is not None:
        moved: array[int] = KERNEL.shifted(column, by, types, ValueType.TEXT)
        return moved
    if types is None:
        return array("q", map(by.__add__, column))
    return array("q", [x + by * (t == ValueType.TEXT) for x, t in zip(column, types, strict=True)])
