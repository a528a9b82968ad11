"""The fields of a type, read from its annotations.

The rules, the search for unknown fields, the encoder and the pages in ``docs/`` all use
this.
"""

import functools
import types
import typing
from typing import Annotated, Any, NamedTuple

import msgspec

from ccpipe.formats.sonar.types.primitives import UINT64_MAX, Primitive, Record


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
