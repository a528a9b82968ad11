"""Conversion of plain data to Structs, and back for output.

Errors name the key path and make a suggestion; output has values with units, and secrets masked.
"""

import functools
import re
import types
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec

from ccpipe.errors import ConfigError, invalid_choice, suggestion


class Duration(float):
    """Seconds, written ``250ms``, ``10s``, ``5m``, ``2h``, ``1d`` or as a plain number."""

    __slots__ = ()
    EXAMPLES = "500ms, 10s, 5m"
    UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400, "": 1}  # noqa: RUF012


class Interval(Duration):
    """A duration of more than 0."""

    __slots__ = ()


class Size(int):
    """Bytes, written ``64KiB``, ``4MiB``, ``1GiB``, ``5MB`` or as a plain number."""

    __slots__ = ()
    EXAMPLES = "64KiB, 4MiB, 1GiB"
    UNITS = {  # noqa: RUF012
        "": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9,
        "KiB": 2**10, "MiB": 2**20, "GiB": 2**30,
    }  # fmt: skip


T = TypeVar("T")


def to_struct(
    tree: Any, kind: type[T], where: str, path: str = "", origins: Mapping[str, str] | None = None
) -> T:
    """Turn plain data into a Struct of `kind`.

    Errors begin with `where`, or with the value in `origins` for that key path, and `path`.
    Raises ConfigError naming the key path and, for an unknown key, the most similar one.
    """
    try:
        return msgspec.convert(tree, kind, strict=False, dec_hook=_read_special)
    except UnicodeEncodeError as error:
        raise ConfigError(f"{where}: {error.object!r} is not UTF-8") from None
    except msgspec.ValidationError as error:
        place, reason, culprit = _explain(str(error), tree, kind)
        for key, name in (origins or {}).items():
            if f"{culprit}.".startswith((f"{key}.", f"{key}[")) or key.startswith(f"{culprit}."):
                where = name
        if not path and not place and isinstance(tree, Mapping):
            place = "top level"
        place = ".".join(filter(None, (path, place)))
        raise ConfigError(": ".join(filter(None, (where, place, reason)))) from None


def _read_special(kind: type[Any], value: Any) -> Any:
    if issubclass(kind, Duration | Size):
        return _measure(kind, value)
    if kind is Path and isinstance(value, str):
        return Path(value)
    raise ValueError(f"not a {kind.__name__}: {value!r:.80}")


_MEASURE = r"([0-9]+\.?[0-9]*|\.[0-9]+)\s*([A-Za-z]*)"


def _measure(kind: type[Duration | Size], value: Any) -> Duration | Size:
    what = "an interval" if kind is Interval else f"a {kind.__name__.lower()}"
    if isinstance(value, bool) or not isinstance(value, int | float):
        found = re.fullmatch(_MEASURE, str(value).strip())
        if not found or found[2] not in kind.UNITS:
            raise ValueError(f"not {what}: {value!r:.80} (expected e.g. {kind.EXAMPLES})")
        value = float(found[1]) * kind.UNITS[found[2]]
    if not 0 <= value < _LIMIT or (value == 0 and kind is Interval):
        minimum = "more than" if kind is Interval else "at least"
        raise ValueError(f"not {what}: {value!r:.80} (must be {minimum} 0 and finite)")
    return kind(value)


_LIMIT = 2**63  # the range of integers in brokers and databases


def _explain(text: str, tree: Any, kind: Any) -> tuple[str, str, str]:
    """Return key path, reason and the offending key path of a msgspec error."""
    found = re.fullmatch(r"(.*) - at `\$(.*)`", text, re.DOTALL)
    reason, place = found.groups() if found else (text, "")
    place, kind = _follow(place, tree, kind)
    key = re.search(r"(?:unknown|missing required) field `(.*)`", reason, re.DOTALL)
    if key is None:
        return place, _in_words(reason, kind), place
    culprit = ".".join(filter(None, (place, key[1])))
    if "missing" in reason:
        return place, f"the key {key[1]!r} is missing", culprit
    hint = suggestion(key[1], sorted(field_types(kind)))
    return place, f"unknown key {key[1]!r}; {hint}", culprit


_KINDS = {
    "str": "text",
    "int": "an integer",
    "float": "a number",
    "bool": "true or false",
    "array": "a list",
    "object": "a table",
    "null": "nothing",
}
"""Names of types as TOML's users know them, by msgspec's names."""


def _in_words(reason: str, kind: Any) -> str:
    """Return the reason of a msgspec error in words of TOML."""
    if found := re.fullmatch(r"Invalid enum value (.*)", reason, re.DOTALL):
        return invalid_choice(found[1].strip("'"), typing.get_args(kind))
    if not (found := re.fullmatch(r"Expected `(.*?)`(.*)", reason, re.DOTALL)):
        return reason
    expected = " or ".join(_KINDS.get(name, name) for name in found[1].split(" | "))
    rest = re.sub(r", got `(.*)`", lambda got: f", got {_KINDS.get(got[1], got[1])}", found[2])
    return f"expected {expected}{rest}"


def _follow(place: str, tree: Any, kind: Any) -> tuple[str, Any]:
    """Resolve msgspec's path to the type there; fill in the keys that it writes as ``[...]``."""
    named = ""
    for step in re.findall(r"[^.\[]+|\[[^\]]*\]", place):
        kind = type_inside(kind, step)
        if step == "[...]":
            key: Any = next(key for key in tree if not _fits(tree[key], kind))
        else:
            key = int(step[1:-1]) if step[0] == "[" else step
        named += step if isinstance(key, int) else f".{key}"
        tree = tree[key]
    return named.removeprefix("."), bare_type(kind)


def _fits(value: Any, kind: Any) -> bool:
    try:
        msgspec.convert(value, kind, strict=False, dec_hook=_read_special)
    except msgspec.ValidationError:
        return False
    return True


def type_at(kind: Any, path: Sequence[str]) -> Any:
    """Return the declared type of the value at a key path; Any if the path is unknown."""
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


def plain(value: Any) -> Any:
    if isinstance(value, Duration | Size):
        return with_unit(value)
    if isinstance(value, msgspec.Struct):
        fields = msgspec.structs.fields(value)
        return {f.encode_name: plain(getattr(value, f.name)) for f in fields}
    if isinstance(value, Mapping):
        return {key: plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    return msgspec.to_builtins(value, enc_hook=str)


def with_unit(value: Duration | Size) -> str | float:
    """Write a duration or size with the largest exact unit: ``10s``, ``64KiB``."""
    units = sorted(type(value).UNITS.items(), key=lambda unit: -unit[1])
    for name, unit in units:
        count = round(value / unit)
        if name and count and count * unit == value:
            return f"{count}{name}"
    return float(value) if isinstance(value, float) else int(value)


def mask(value: Any, key: str = "") -> Any:
    """Mask secrets in a value, and in all values of tables and lists.

    Masked are: everything before the last ``@`` of a URL, with or without its scheme, even if the
    URL is malformed; parameters such as ``password=``; and values whose key names a secret.
    """
    if isinstance(value, Mapping):
        return {name: mask(inner, str(name)) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [mask(item, key) for item in value]
    if not isinstance(value, str) or not value:
        return value
    if _SECRET_KEY.search(key):
        return "***"
    userinfo = _ANY_USERINFO if _URL_KEY.search(key) else _USERINFO
    return _PARAMETER.sub(r"\1***", userinfo.sub(_masked_userinfo, value))


def _masked_userinfo(found: re.Match[str]) -> str:
    scheme = _SCHEME.match(found[0])
    return f"{scheme[0] if scheme else ''}***@"


_NAMES = r"(?:password|passwd|passphrase|secret|token|api_?key|seed|credentials?)"
_SECRET_KEY = re.compile(rf"{_NAMES}$", re.IGNORECASE)
_URL_KEY = re.compile(r"(?:servers?|urls?|uri|dsn|address|brokers?|hosts?|endpoints?)$")
"""Keys whose values are addresses: anything before ``@`` in them may be a secret."""
_ANY_USERINFO = re.compile(r"^.*@", re.DOTALL)
_USERINFO = re.compile(r"^[^@]*:.*@", re.DOTALL)
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)
_PARAMETER = re.compile(rf"({_NAMES}\s*=\s*)('[^']*'|[^\s&;,]+)", re.IGNORECASE)
