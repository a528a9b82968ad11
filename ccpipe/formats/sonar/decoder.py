"""One JSON value to an envelope.

Most values are decoded directly into the types. If that fails, or an integer may be too large, the
value is first decoded without types: to locate errors, to keep unknown fields, and to convert older
variants to the current layout.
"""

import json
import re
from collections import Counter, deque
from collections.abc import Iterator
from typing import Any, NamedTuple, cast

import msgspec
from msgspec import DecodeError, Struct, ValidationError
from msgspec.structs import replace

from ccpipe.formats.sonar.legacy_layouts import check_depth, modernize, unwrap, upgrade
from ccpipe.formats.sonar.profiles import Numbers, ReadProfile, from_sonar, numbers_of, unmark
from ccpipe.formats.sonar.rules import Problem, beyond_64_bits, format_path, problems
from ccpipe.formats.sonar.types.envelope import (
    ENVELOPES,
    ClusterData,
    Envelope,
    JobsData,
    Path,
    SampleData,
    SysinfoData,
)
from ccpipe.formats.sonar.types.job import JobsAttributes
from ccpipe.formats.sonar.types.meta import ErrorObject, MetadataObject
from ccpipe.formats.sonar.types.primitives import ExtendedUint, Record, fields


class Malformed(NamedTuple):
    """Bytes that are not a JSON value."""

    offset: int
    rule: str


class _JobsDataAsDocumented(Record, frozen=True, tag_field="type", tag="jobs"):
    """Job data with the tag of the specification, "jobs"; all programs write "job"."""

    attributes: JobsAttributes = JobsAttributes()


class _Wire(Struct, gc=False, forbid_unknown_fields=True):
    """An envelope of any type, in JSON layout."""

    meta: MetadataObject = MetadataObject()
    data: SysinfoData | SampleData | JobsData | _JobsDataAsDocumented | ClusterData | None = None
    errors: tuple[ErrorObject, ...] | None = None


def _extended(kind: type[ExtendedUint], value: Any) -> ExtendedUint:
    """Read an ExtendedUint; msgspec adds the path to the error."""
    if type(value) is not int:
        raise ValueError(f"Expected `int`, got `{type(value).__name__}`")
    return kind.from_wire(value)


_DECODER = msgspec.json.Decoder(_Wire, dec_hook=_extended)


def _may_exceed_64_bits(raw: bytes | bytearray) -> bool:
    """Return whether an integer may exceed 64 bits: msgspec accepts any length."""
    # Of a sample of 62 kB in 60 µs, a quarter of its decoding; `in raw.translate()` takes 160.
    return bytearray(raw).translate(_TO_ZEROES).rfind(_TWENTY_DIGITS) >= 0


class _Pairs(list[tuple[str, Any]]):
    """An object with all its keys, including duplicates."""


def repeated_keys(raw: bytes | bytearray) -> Iterator[Problem]:
    """Yield the duplicate keys of objects in otherwise valid JSON.

    JSON does not define which value wins; Go's reader and this one use the last.
    """
    tree = json.loads(raw, object_pairs_hook=_Pairs, parse_int=str, parse_float=str)
    left: deque[tuple[Path, Any]] = deque([((), tree)])
    while left:
        path, value = left.popleft()
        if isinstance(value, _Pairs):
            counted = Counter(key for key, _ in value)
            for key in (key for key, count in counted.items() if count > 1):
                yield Problem(format_path((*path, key)), "key must not be repeated")
            left += [((*path, key), item) for key, item in value]
        elif isinstance(value, list):
            left += [((*path, index), item) for index, item in enumerate(value)]


_TO_ZEROES = bytes.maketrans(b"123456789", b"000000000")
_TWENTY_DIGITS = b"0" * 20


def decode_value(
    raw: bytes | bytearray, *, strict: bool, profile: ReadProfile
) -> Envelope | list[Problem] | Malformed:
    """Decode one JSON value to an envelope, or return the broken rules or a syntax error."""
    decoded = _decode(raw, strict=strict, profile=profile)
    if strict and not isinstance(decoded, Malformed) and (found := list(repeated_keys(raw))):
        return found + (decoded if isinstance(decoded, list) else [])
    return decoded


def _decode(
    raw: bytes | bytearray, *, strict: bool, profile: ReadProfile
) -> Envelope | list[Problem] | Malformed:
    try:
        wire = _DECODER.decode(raw)
    except ValidationError as error:
        return _decode_untyped(raw, error, strict=strict, profile=profile)
    except (DecodeError, UnicodeDecodeError, RecursionError) as error:
        return malformed(raw, error)
    if _may_exceed_64_bits(raw):
        return _decode_untyped(raw, None, strict=strict, profile=profile)
    numbers = numbers_of(wire.meta.producer, wire.meta.version, profile)
    envelope = _envelope(wire, {})
    return _broken(envelope, wire, numbers, strict=strict) or _normalized(envelope, numbers)


def decode_types(raw: bytes) -> list[Problem]:
    try:
        wire = _DECODER.decode(raw)
    except DecodeError as error:
        return [_problem(error, None)]
    return list(beyond_64_bits(_envelope(wire, {}))) if _may_exceed_64_bits(raw) else []


def _envelope(wire: _Wire, unknown: dict[Path, Any]) -> Envelope:
    data = wire.data
    if isinstance(data, _JobsDataAsDocumented):
        data = JobsData(attributes=data.attributes)
    cls = Envelope if data is None else ENVELOPES[type(data)]
    return cls(meta=wire.meta, data=data, errors=wire.errors or (), unknown=unknown)


def _broken(envelope: Envelope, wire: _Wire, numbers: Numbers, *, strict: bool) -> list[Problem]:
    found = problems(envelope, strict=strict, writer=numbers)
    if strict and wire.data is not None and wire.errors == ():
        found.append(Problem("$.errors", "must not be present together with data", ()))
    return found


def _normalized(envelope: Envelope, numbers: Numbers) -> Envelope:
    meta = unmark(envelope.meta)
    if meta is not envelope.meta:
        envelope = replace(envelope, meta=meta)
    return from_sonar(envelope) if numbers == "sonar" else envelope


def _decode_untyped(
    raw: bytes | bytearray, first: ValidationError | None, *, strict: bool, profile: ReadProfile
) -> Envelope | list[Problem] | Malformed:
    try:
        tree = unwrap(msgspec.json.decode(raw))
        return decode_tree(
            tree,
            nulls=b"null" in raw,
            long_numbers=_may_exceed_64_bits(raw),
            strict=strict,
            profile=profile,
        )
    except ValidationError as error:  # out of range: only the typed decoder reports the path
        return [_problem(first or error, None)]
    except (DecodeError, UnicodeDecodeError, RecursionError) as error:
        return malformed(raw, error)


def decode_tree(
    tree: Any,
    *,
    nulls: bool = False,
    long_numbers: bool = False,
    strict: bool,
    profile: ReadProfile,
) -> Envelope | list[Problem]:
    """Convert a JSON value that was decoded without types.

    `nulls` and `long_numbers`: whether it may contain ``null`` and integers beyond 64 bits.

    Raises RecursionError if it nests too deeply.
    """
    if not strict:
        tree = upgrade(tree, numbers_of("sonar", "", profile))
        modernize(tree, nulls=nulls, numbers=_numbers_of_tree(tree, profile))
    unknown = dict(_take_unknown(tree))
    check_depth(unknown)
    found = [Problem(format_path(p), "unknown field", v) for p, v in unknown.items() if strict]
    try:
        wire = msgspec.convert(tree, _Wire, dec_hook=_extended)
    except ValidationError as error:
        return [*found, _problem(error, tree)]
    numbers = numbers_of(wire.meta.producer, wire.meta.version, profile)
    envelope = _envelope(wire, unknown)
    if long_numbers:
        found += beyond_64_bits(envelope)
    found += _broken(envelope, wire, numbers, strict=strict)
    return found or _normalized(envelope, numbers)


def _numbers_of_tree(tree: Any, profile: ReadProfile) -> Numbers:
    meta = tree.get("meta") if isinstance(tree, dict) else None
    if not isinstance(meta, dict):
        meta = {}
    return numbers_of(str(meta.get("producer", "")), str(meta.get("version", "")), profile)


TOO_EARLY = "JSON ends too early"
TRAILING = "trailing data after the JSON value"
_RULES = {"Input data was truncated": TOO_EARLY, "JSON is malformed: trailing characters": TRAILING}
"""Our texts for the ``msgspec`` messages that the stream decoder checks for."""


def malformed(raw: bytes | bytearray | memoryview, error: Exception) -> Malformed:
    """Convert a JSON syntax error to position and rule."""
    if isinstance(error, RecursionError):
        return Malformed(0, _TOO_DEEP)
    if isinstance(error, UnicodeDecodeError):
        try:
            bytes(raw).decode()
        except UnicodeDecodeError as bad:
            return Malformed(bad.start, "the bytes are not valid UTF-8")
    text, _, place = str(error).removesuffix(")").partition(" (byte ")
    return Malformed(int(place) if place else len(raw), _RULES.get(text, text))


_TOO_DEEP = "JSON is nested too deeply"


def _problem(error: Exception, tree: Any) -> Problem:
    """Convert msgspec's message, ``… - at `$.data.attributes.jobs[3].user```, to a problem."""
    text, _, path = str(error).partition(" - at ")
    path = path.strip("`") or "$"
    return Problem(path, text[:1].lower() + text[1:], _at(tree, path))


def _at(tree: Any, path: str) -> Any:
    for name, index in re.findall(r"\.(\w+)|\[(\d+)\]", path):
        try:
            tree = tree[int(index) if index else name]
        except (LookupError, TypeError):
            return None
    return None if isinstance(tree, dict | list) else tree


_KEYS = ("meta", "data", "errors")
_DATA_OF_TAG: dict[Any, type[Record]] = {
    "sysinfo": SysinfoData,
    "sample": SampleData,
    "job": JobsData,
    "jobs": JobsData,
    "cluster": ClusterData,
}


def _take_unknown(tree: Any) -> Iterator[tuple[Path, Any]]:
    """Remove unknown fields from an envelope; yield their paths and values."""
    if not isinstance(tree, dict):
        return
    for key in [key for key in tree if key not in _KEYS]:
        yield (key,), tree.pop(key)
    yield from _unknown_of(tree.get("meta"), MetadataObject, ("meta",))
    data = tree.get("data")
    if isinstance(data, dict) and isinstance(data.get("type"), str):
        cls = _DATA_OF_TAG.get(data["type"])
        if cls is not None:
            tag = data.pop("type")
            yield from _unknown_of(data, cls, ("data",))
            data["type"] = tag
    yield from _unknown_of(tree.get("errors"), ErrorObject, ("errors",))


def _unknown_of(value: Any, cls: type[Record], path: Path) -> Iterator[tuple[Path, Any]]:
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from _unknown_of(item, cls, (*path, index))
    elif isinstance(value, dict):
        known = fields(cls)
        for key in [key for key in value if key not in known]:
            yield (*path, cast("str", key)), value.pop(key)
        for key, item in value.items():
            record = known[key].record
            if record is not None:
                yield from _unknown_of(item, record, (*path, key))
