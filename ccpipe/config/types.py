"""Declared types of configuration values by key path, without annotations."""

import functools
import types
import typing
from collections.abc import Sequence
from typing import Annotated, Any

import msgspec


def type_at(kind: Any, path: Sequence[str]) -> Any:
    """Return the declared type of the value at a key path; Any if there is none."""
    return functools.reduce(type_inside, path, kind)


def type_inside(kind: Any, step: str) -> Any:
    """Return the type of an element or field of a Struct, dict or list."""
    kind = bare_type(kind)
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return field_types(kind).get(step, Any)
    return (Any, *typing.get_args(kind))[-1]


def bare_type(kind: Any) -> Any:
    """Return a type without its annotations and without ``| None``."""
    while typing.get_origin(kind) in (Annotated, typing.Union, types.UnionType):
        kind = next(choice for choice in typing.get_args(kind) if choice is not types.NoneType)
    return kind


def field_types(kind: Any) -> dict[str, Any]:
    return {field.encode_name: field.type for field in msgspec.structs.fields(kind)}
