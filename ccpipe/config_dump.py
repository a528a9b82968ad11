"""The configuration as plain data for output: values with units, secrets masked."""

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from ccpipe.config import Duration, Size


def plain(value: Any) -> Any:
    """Convert a value of the configuration to plain data for TOML or JSON."""
    if isinstance(value, Duration | Size):
        return measure(value)
    if isinstance(value, msgspec.Struct):
        fields = msgspec.structs.fields(value)
        return {f.encode_name: plain(getattr(value, f.name)) for f in fields}
    if isinstance(value, Mapping):
        return {key: plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    return msgspec.to_builtins(value, enc_hook=str)


def measure(value: Duration | Size) -> str | float:
    """Write a duration or size with the largest exact unit: ``10s``, ``64KiB``."""
    units = sorted(type(value).UNITS.items(), key=lambda unit: -unit[1])
    for name, unit in units:
        count = round(value / unit)
        if name and count and count * unit == value:
            return f"{count}{name}"
    return float(value) if isinstance(value, float) else int(value)


def mask(value: Any) -> Any:
    """Mask user and password in URLs."""
    if isinstance(value, list):
        return [mask(item) for item in value]
    return _USERINFO.sub(r"\1***@", value) if isinstance(value, str) else value


_USERINFO = re.compile(r"^([a-z][a-z0-9+.-]*://)\S*@", re.IGNORECASE)
