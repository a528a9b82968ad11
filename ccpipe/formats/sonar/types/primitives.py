"""The specification's primitive types, each with the rule for its values, and ``fields`` of a type.

The rule is part of the type's annotation: msgspec uses its integer ranges, ``rules`` and the JSON
Schema the rest. The rules, the search for unknown fields, the encoder and the pages in ``docs/``
read the annotations with ``fields``.

Source: Sonar JSON format output specification, *Data types*.
"""

import functools
import re
import types
import typing
from collections.abc import Callable
from typing import Annotated, Any, ClassVar, Final, NamedTuple

import msgspec
from msgspec import Meta, Struct

from ccpipe.errors import DataError
from ccpipe.formats.nodelist import parse
from ccpipe.formats.sonar.types import timestamp

UINT64_MAX: Final = 2**64 - 1

_BASE = 2


class ExtendedUint:
    """An unsigned value that carries two additional values: unset and infinite.

    On the wire it is one unsigned integer: 0 for unset, 1 for infinite, and v+2 for all other
    values v, so that v itself ends at 2⁶⁴-3.

    >>> ExtendedUint(90).wire, UNSET.wire, INFINITE.wire
    (92, 0, 1)
    >>> ExtendedUint.from_wire(92).value
    90

    Source: Sonar JSON format output specification, *Type: ExtendedUint*.
    """

    __slots__ = ("wire",)
    UNSET: ClassVar["ExtendedUint"]
    INFINITE: ClassVar["ExtendedUint"]

    wire: int
    """The number in JSON."""

    def __init__(self, value: int) -> None:
        """Make a finite value; raises ValueError outside of 0 … 2⁶⁴-3."""
        if not 0 <= value <= UINT64_MAX - _BASE:
            raise ValueError(f"{value} is outside of 0 … 2⁶⁴-3")
        self.wire = value + _BASE

    @classmethod
    def from_wire(cls, number: int) -> "ExtendedUint":
        """Convert the number in JSON; raises ValueError outside of 0 … 2⁶⁴-1."""
        if number == 0:
            return cls.UNSET
        if number == 1:
            return cls.INFINITE
        if not 0 <= number <= UINT64_MAX:
            raise ValueError(f"{number} is outside of 0 … 2⁶⁴-1")
        return cls(number - _BASE)

    @property
    def value(self) -> int | None:
        """The number; None if it is unset or infinite."""
        return self.wire - _BASE if self.wire >= _BASE else None

    @property
    def is_infinite(self) -> bool:
        """Whether it means no limit, as Slurm's ``UNLIMITED``."""
        return self.wire == 1

    def __bool__(self) -> bool:
        """Return whether it is set."""
        return self.wire != 0

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ExtendedUint) and self.wire == other.wire

    def __hash__(self) -> int:
        return hash((ExtendedUint, self.wire))

    def __repr__(self) -> str:
        return f"ExtendedUint({_SPECIAL.get(self.wire, self.value)})"


_SPECIAL = {0: "UNSET", 1: "INFINITE"}


def _special(wire: int) -> ExtendedUint:
    made = object.__new__(ExtendedUint)
    made.wire = wire
    return made


UNSET: Final = _special(0)
INFINITE: Final = _special(1)
ExtendedUint.UNSET, ExtendedUint.INFINITE = UNSET, INFINITE


__all__ = [
    "INFINITE",
    "UNSET",
    "ExtendedUint",
    "Hostname",
    "Int64",
    "NodeRange",
    "NonemptyString",
    "NonzeroUint",
    "OptionalTimestamp",
    "Primitive",
    "Record",
    "Timestamp",
    "Uint64",
]


class Record(Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """Base of all types of the specification: immutable, and every field has a default.

    An omitted field has the default value of its type: zero, the empty string, false, the empty
    array (*Data format overall notes*).
    """


class Primitive(NamedTuple):
    """A primitive type's name and rule."""

    name: str
    rule: str
    """The rule as text that follows the value's path."""
    strict: Callable[[Any], bool]
    """Whether a value conforms to the specification."""
    tolerant: Callable[[Any], bool] | None
    """Whether a tolerant decoder accepts a value; None if it accepts any of the JSON type."""
    required: bool
    """Whether the default value, hence a missing field, breaks the rule."""
    schema: dict[str, Any]
    """The rule, as far as JSON Schema can express it."""
    sonar: Callable[[Any], bool] | None = None
    """Whether Sonar writes such a value, if it deviates from its specification."""


_HOSTNAME = re.compile(r"(?=.{1,253}\Z)[A-Za-z0-9](?:[-A-Za-z0-9]{0,61}[A-Za-z0-9])?+"
                       r"(?:\.[A-Za-z0-9](?:[-A-Za-z0-9]{0,61}[A-Za-z0-9])?+)*+\Z")  # fmt: skip


def _is_hostname(text: str) -> bool:
    return _HOSTNAME.match(text) is not None


_NODE_RANGE = re.compile(r"[-A-Za-z0-9.,\[\]]+")


def is_node_range(text: str) -> bool:
    """Return whether a text is a node list whose names are host names."""
    if not _NODE_RANGE.fullmatch(text):
        return False
    try:
        parse(text)
    except DataError:
        return False
    return True


def _is_readable_or_empty(text: str) -> bool:
    return not text or timestamp.is_readable(text)


def _is_timestamp_or_empty(text: str) -> bool:
    return not text or timestamp.is_strict(text)


def _is_sonar_timestamp_or_empty(text: str) -> bool:
    return not text or timestamp.is_sonar_time(text)


Uint64 = Annotated[int, Meta(ge=0)]
"""Unsigned 64-bit integer."""

Int64 = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
"""Signed 64-bit integer."""

NonemptyString = Annotated[
    str,
    Primitive(
        "NonemptyString", "must not be empty", bool, None, required=True, schema={"minLength": 1}
    ),
]
"""String value where an empty value is an error, not simply absence of data."""

NonzeroUint = Annotated[
    int,
    Meta(ge=0),
    Primitive("NonzeroUint", "must not be zero", bool, None, required=True, schema={"minimum": 1}),
]
"""Uint64 value where zero is an error, not simply absence of data."""

Timestamp = Annotated[
    str,
    Primitive(
        "Timestamp",
        "must be a time yyyy-mm-ddThh:mm:ss±hh:mm, with Z for +00:00",
        timestamp.is_strict,
        _is_readable_or_empty,
        required=True,
        schema={"pattern": timestamp.PATTERN},
        sonar=timestamp.is_sonar_time,
    ),
]
"""RFC3339 localtime+TZO with no sub-second precision: yyyy-mm-ddThh:mm:ss+hh:mm, "Z" for
+00:00."""

OptionalTimestamp = Annotated[
    str,
    Primitive(
        "OptionalTimestamp",
        "must be empty or a time yyyy-mm-ddThh:mm:ss±hh:mm, with Z for +00:00",
        _is_timestamp_or_empty,
        _is_readable_or_empty,
        required=False,
        schema={"pattern": f"^$|{timestamp.PATTERN}"},
        sonar=_is_sonar_timestamp_or_empty,
    ),
]
"""Timestamp, or empty string for missing data."""

Hostname = Annotated[
    str,
    Primitive(
        "Hostname",
        "must be a host name: letters, digits and hyphens between dots",
        _is_hostname,
        None,
        required=True,
        schema={"format": "hostname", "minLength": 1},
    ),
]
"""Dotted host name or prefix of same, with standard restrictions on character set."""

NodeRange = Annotated[
    str,
    Primitive(
        "NodeRange",
        "must be a list of nodes",
        is_node_range,
        None,
        required=True,
        schema={"minLength": 1},
    ),
]
"""A nonempty string representing a list of hostnames compactly using a simple syntax: brackets
introduce a list of individual numbered nodes and ranges, these are expanded to yield a list of
node names.

For example, `c[1-3,5]-[2-4].fox` yields `c1-2.fox`, `c1-3.fox`, `c1-4.fox`, `c2-2.fox`,
`c2-3.fox`, `c2-4.fox`, `c3-2.fox`, `c3-3.fox`, `c3-4.fox`, `c5-2.fox`, `c5-3.fox`, `c5-4.fox`.
In a valid range, the first number is no greater than the second number, and numbers are not
repeated. `ccpipe.formats.nodelist` reads and writes it.
"""


class FieldLayout(NamedTuple):
    """One field of a type."""

    name: str
    default: Any
    depth: int
    """0 for a value, 1 for an array of values, 2 for an array of arrays."""
    record: type[Record] | None
    """The type of the object, or of the array's objects; None for a scalar."""
    primitive: Primitive | None
    """The rule of the value, or of the array's values."""
    span: tuple[int, int] | None
    """Minimum and maximum of an integer; None for other types."""
    value: Any
    """The type of the value, or of the array's values, without its rule."""


@functools.cache
def fields(cls: type[Record]) -> dict[str, FieldLayout]:
    """Return the fields of a type by name, in the order of the specification."""
    return {info.name: _field(info) for info in msgspec.structs.fields(cls)}


def _field(info: msgspec.structs.FieldInfo) -> FieldLayout:
    kind, depth = info.type, 0
    while True:
        if typing.get_origin(kind) is tuple and Ellipsis in typing.get_args(kind):
            kind, depth = typing.get_args(kind)[0], depth + 1
        elif isinstance(kind, types.UnionType):
            kind = typing.get_args(kind)[0]
        else:
            break
    primitive, span = None, None
    for note in getattr(kind, "__metadata__", ()):
        if isinstance(note, Primitive):
            primitive = note
        elif isinstance(note, msgspec.Meta) and note.ge is not None:
            span = (int(note.ge), UINT64_MAX if note.le is None else int(note.le))
    if typing.get_origin(kind) is Annotated:
        kind = kind.__origin__
    record = kind if isinstance(kind, type) and issubclass(kind, Record) else None
    default = info.default
    if info.default_factory is not msgspec.NODEFAULT:
        default = info.default_factory()
    return FieldLayout(info.name, default, depth, record, primitive, span, kind)
