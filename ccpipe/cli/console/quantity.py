"""Numbers in short form, with their unit."""

SCALED = {
    "bytes": ("B", 1.0),
    "kB": ("B", 1e3),
    "MByte": ("B", 1e6),
    "GBytes": ("B", 1e9),
    "bytes/s": ("B/s", 1.0),
    "MByte/s": ("B/s", 1e6),
    "Flops/s": ("F/s", 1.0),
    "MHz": ("Hz", 1e6),
    "W": ("W", 1.0),
    "J": ("J", 1.0),
}
"""Units that take a prefix: symbol and factor."""

PLAIN = {"percent": "%", "degC": "°C", "sec": "s"}
"""Formats of other units."""

PREFIXES = ("", "k", "M", "G", "T", "P", "E")
_STEP = 1000.0
_MAX_EXACT = 10**6


def short(value: float, unit: str = "", *, digits: int = 4) -> str:
    """Format a number with a maximum of significant digits, except small integers.

    >>> short(134217728, "bytes"), short(3450.0, "MHz"), short(12), short(0.123456, "percent")
    ('134.2 MB', '3.45 GHz', '12', '0.1235 %')
    >>> short(40123.4), short(134217728, "bytes", digits=3)
    ('40123', '134 MB')
    """
    symbol, factor = SCALED.get(unit, (PLAIN.get(unit, unit), 0.0))
    if factor:
        value *= factor
    elif isinstance(value, int) and abs(value) < _MAX_EXACT:
        return f"{value} {symbol}".rstrip()
    prefix = ""
    if factor or abs(value) >= _MAX_EXACT:
        for prefix in PREFIXES:
            if abs(value) < _STEP - 5 * 10.0 ** (2 - digits) or prefix == PREFIXES[-1]:
                break
            value /= _STEP
    number = f"{value:.0f}" if _STEP <= abs(value) < _MAX_EXACT else f"{value:.{digits}g}"
    return f"{number} {prefix}{symbol}".rstrip()
