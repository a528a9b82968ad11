"""Envelopes to bytes: one line each, with the keys in the specification's order."""

import functools
from collections.abc import Callable
from decimal import Decimal
from operator import attrgetter
from typing import Any

import msgspec

from ccpipe.errors import EncodeError
from ccpipe.formats.sonar.decoder import decode_types
from ccpipe.formats.sonar.profiles import STYLES, WriteProfile, depends_on_numbers, mark, to_sonar
from ccpipe.formats.sonar.rules import format_path
from ccpipe.formats.sonar.types.envelope import Envelope, JobsData
from ccpipe.formats.sonar.types.primitives import ExtendedUint, FieldLayout, Record, fields


def encode(envelope: Envelope, *, profile: WriteProfile = "spec") -> bytes:
    """Encode an envelope as one line, with its LF.

    Fields with their default value are omitted unless the profile always writes them. Unknown
    fields are restored at their paths. The result is checked by decoding it.

    Raises
    ------
    EncodeError
        for values that JSON, the types or the profile's reader do not allow: data together with
        errors, NaN and infinity, integers beyond 64 bits, lone surrogates.

    """
    style = STYLES[profile]
    if (envelope.data is None) == (not envelope.errors):
        raise EncodeError("an envelope has either data or errors")
    envelope = style.prepare(envelope)
    if style.numbers == "sonar":
        envelope = to_sonar(envelope)
    needed = style.numbers == "sonar" or depends_on_numbers(envelope)
    meta = mark(envelope.meta, style.numbers, needed=needed)
    tree: dict[str, Any] = {"meta": _object(meta, profile)}
    if envelope.data is not None:
        tag = style.jobs_tag if isinstance(envelope.data, JobsData) else envelope.data.type
        tree["data"] = {"type": tag, "attributes": _object(envelope.data.attributes, profile)}
    else:
        tree["errors"] = [_object(error, profile) for error in envelope.errors]
    try:
        encoded = msgspec.json.encode(tree)
    except (UnicodeEncodeError, TypeError) as error:
        raise EncodeError(f"the envelope cannot be written as JSON: {error}") from None
    for problem in decode_types(encoded):
        raise EncodeError(str(problem))
    return (_with_unknown(tree, envelope) if envelope.unknown else encoded) + b"\n"


def _object(record: Record, profile: WriteProfile) -> dict[str, Any]:
    tree = {}
    for name, default, convert in _plan(type(record), profile):
        value = getattr(record, name)
        if value != default:
            tree[name] = value if convert is None else convert(value)
    return tree


_ALWAYS = object()
"""Default of fields that are always written: equal to no value."""


@functools.cache
def _plan(
    cls: type[Record], profile: WriteProfile
) -> list[tuple[str, Any, Callable[[Any], Any] | None]]:
    always = STYLES[profile].always.get(cls, frozenset())
    return [
        (name, _ALWAYS if name in always else field.default, _conversion(field, profile))
        for name, field in fields(cls).items()
    ]


def _conversion(field: FieldLayout, profile: WriteProfile) -> Callable[[Any], Any] | None:
    if field.record is not None and field.depth:
        return lambda records: [_object(record, profile) for record in records]
    if field.record is not None:
        return lambda record: _object(record, profile)
    if field.value is ExtendedUint:
        return attrgetter("wire")
    if STYLES[profile].numbers == "sonar":
        if field.value is float:
            return _plain_float
        if field.primitive is not None and field.primitive.name.endswith("Timestamp"):
            return _with_offset
    return None


def _plain_float(value: float) -> Any:
    """Write a float as Sonar does: without ``.0`` or an exponent."""
    number = Decimal(repr(value))
    return msgspec.Raw(format(number.normalize(), "f").encode()) if number.is_finite() else value


def _with_offset(time: str) -> str:
    """Write UTC as Sonar does: ``+00:00`` instead of ``Z``."""
    return time[:-1] + "+00:00" if time.endswith("Z") else time


def _with_unknown(tree: dict[str, Any], envelope: Envelope) -> bytes:
    for path, value in envelope.unknown.items():
        place: Any = tree
        try:
            for key in path[:-1]:
                place = place[key]
            place[path[-1]] = value
        except (LookupError, TypeError):
            raise EncodeError(
                f"{format_path(path)}: unknown field without its parent object or array"
            ) from None
    try:
        return msgspec.json.encode(tree)
    except (UnicodeEncodeError, RecursionError, TypeError) as error:
        raise EncodeError(f"an unknown field cannot be written as JSON: {error}") from None
