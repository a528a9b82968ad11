"""The configuration as plain data for output: values with units, secrets masked."""

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from ccpipe.config import Duration, Size


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
