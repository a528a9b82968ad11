"""Values of line protocol: their types, and their cells in the columns of ``Lines``."""

import enum
import math
import re
from typing import TypeGuard

from ccpipe.errors import EncodeError
from ccpipe.formats.lineprotocol.precision import INT64_MAX, INT64_MIN
from ccpipe.message import Uint, Value


class ValueType(enum.IntEnum):
    """How a value was written: the cells of the column ``Lines.types``."""

    FLOAT = 0
    INT = 1
    UINT = 2
    BOOL = 3
    TEXT = 4


IS_NUMBER = [kind in (ValueType.FLOAT, ValueType.INT, ValueType.UINT) for kind in ValueType]
"""Result of `is_number` for each type, by its number."""


def is_number(value: Value) -> TypeGuard[float]:
    """Return whether a value is a number; booleans are not."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def cells(value: Value) -> tuple[float, int, ValueType]:
    """Return the cells of a value: ``numbers``, ``exact`` and ``types``; a text's ``exact`` is 0.

    Raises EncodeError if line protocol cannot carry the value: a number that is not finite, an
    integer beyond 64 bits, a text with half a surrogate pair.
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
                raise EncodeError(f"{value!r:.80} holds half a surrogate pair")
            return math.nan, 0, ValueType.TEXT
        case _:
            raise EncodeError(f"{value!r:.80} cannot be a value in line protocol")


def signed(unsigned: int) -> int:
    """Return the 64 bits of an unsigned integer as a signed one."""
    return unsigned - 2**64 if unsigned > INT64_MAX else unsigned


_SURROGATE = "[\ud800-\udfff]"
