"""Units of metrics, as ClusterCockpit writes them: ``MByte/s``, ``kB``, ``GHz``, ``W``, ``degC``.

Source: cc-lib's package ``ccUnits``. As there, a lower-case ``m`` is mega for countable units
(bytes, flops, packets, events, cycles, requests), and ``k`` is 1000 while ``Ki`` is 1024. Also
accepted are bits, minutes, hours, days, watt-hours, ratios (100 percent), Linux's ``512 bytes`` and
units of counts. A lone lower-case ``b`` is rejected: it is used for both bits and bytes.
"""

import functools
import math
import re
from fractions import Fraction
from typing import NamedTuple

from ccpipe.errors import DataError
from ccpipe.message import Uint

_PREFIXES = {
    "n": Fraction(1, 10**9), "u": Fraction(1, 10**6), "µ": Fraction(1, 10**6),
    "m": Fraction(1, 10**3), "": Fraction(1), "k": Fraction(10**3), "M": Fraction(10**6),
    "G": Fraction(10**9), "T": Fraction(10**12), "P": Fraction(10**15), "E": Fraction(10**18),
    "Ki": Fraction(2**10), "Mi": Fraction(2**20), "Gi": Fraction(2**30), "Ti": Fraction(2**40),
    "Pi": Fraction(2**50), "Ei": Fraction(2**60),
}  # fmt: skip
_ALSO = {"K": "k", "ki": "Ki", "g": "G", "t": "T", "p": "P"}

_SYMBOLS = {
    "B": ("byte", Fraction(1)),
    "F": ("flop", Fraction(1)),
    "s": ("second", Fraction(1)),
    "h": ("second", Fraction(3600)),
    "d": ("second", Fraction(86400)),
    "W": ("watt", Fraction(1)),
    "J": ("joule", Fraction(1)),
    "V": ("volt", Fraction(1)),
    "A": ("ampere", Fraction(1)),
    "%": ("percent", Fraction(1)),
}
_WORDS = {  # in any case
    word: (measure, Fraction(scale))
    for measure, scale, words in (
        ("byte", 1, "byte bytes"),
        ("byte", "1/8", "bit bits"),
        ("flop", 1, "flop flops"),
        ("packet", 1, "packet packets pkt pkts"),
        ("event", 1, "event events"),
        ("cycle", 1, "cyc cycle cycles"),
        ("request", 1, "req reqs request requests"),
        ("page", 1, "page pages"),
        ("tick", 1, "tick ticks"),
        ("percent", 1, "percent"),
        ("percent", 100, "ratio"),
        ("revolution", 1, "rpm"),
        ("hertz", 1, "hz hertz"),
        ("second", 1, "sec second seconds"),
        ("second", 60, "min minute minutes"),
        ("second", 3600, "hour hours"),
        ("second", 86400, "day days"),
        ("watt", 1, "watt watts"),
        ("joule", 1, "joule joules"),
        ("joule", 3600, "wh"),
        ("volt", 1, "volt volts"),
        ("ampere", 1, "ampere amperes"),
    )
    for word in words.split()
}
_DEGREES = {
    **dict.fromkeys(("degc", "°c", "degreec"), (Fraction(1), Fraction(0))),
    **dict.fromkeys(("degf", "°f", "degreef"), (Fraction(5, 9), Fraction(-160, 9))),
}
_WHOLE = frozenset({"byte", "flop", "packet", "event", "cycle", "request"})
"""Countable measures, for which a lower-case ``m`` is mega."""

_FORM = re.compile(r"(?:([1-9]\d{0,5}) )?([^\s/]{1,20})(?:/([^\s/]{1,20}))?", re.ASCII)
_PREFIXED = re.compile(r"([KkMGTPE]i|[nuµmkKMGTPEgtp])(.+)")


class Unit(NamedTuple):
    """A unit of a measure: ``value * scale + zero`` is the value in the base unit."""

    measure: str
    """Such as ``byte`` or ``byte/second``; only units of the same measure can be converted."""
    scale: Fraction
    zero: Fraction = Fraction(0)


class Conversion(NamedTuple):
    """The exact conversion between two units: ``(value * times + plus) / divisor``."""

    times: int
    plus: int
    divisor: int

    @property
    def is_whole(self) -> bool:
        return self.divisor == 1

    def __call__(self, value: float) -> float | None:
        """Convert a value; None if the result cannot be written as a metric.

        An integer keeps its type if the conversion is whole, otherwise the result is a float, so
        all values of a series have one type.
        """
        if isinstance(value, int):
            exact = value * self.times + self.plus
            if not self.is_whole:
                return exact / self.divisor
            unsigned = isinstance(value, Uint)
            minimum, beyond = (0, 2**64) if unsigned else (-(2**63), 2**63)
            if not minimum <= exact < beyond:
                return None
            return Uint(exact) if unsigned else exact
        result = (value * self.times + self.plus) / self.divisor
        return result if math.isfinite(result) else None


@functools.lru_cache(maxsize=1024)
def parse_unit(text: str) -> Unit:
    """Parse a unit, such as ``MByte/s``; raises DataError for anything else."""
    found = _FORM.fullmatch(text)
    if found is None:
        raise DataError(f"not a unit: {text!r:.40}")
    count, word, below = found.groups()
    try:
        unit = _single(word)
        if below:
            divisor = _single(below)
            unit = Unit(f"{unit.measure}/{divisor.measure}", unit.scale / divisor.scale)
    except KeyError:
        raise DataError(f"unknown unit: {text!r:.40}") from None
    return unit._replace(scale=unit.scale * int(count or 1))


def _single(word: str) -> Unit:
    """Parse a unit without divisor; raises KeyError if it is unknown."""
    if word.lower() in _DEGREES:
        return Unit("temperature", *_DEGREES[word.lower()])
    prefix = ""
    if not (known := _measure(word)):
        found = _PREFIXED.fullmatch(word)
        prefix, word = found.groups() if found else ("", word)
        known = _measure(word)
    if not known:
        raise KeyError(word)
    measure, scale = known
    if prefix == "m" and measure in _WHOLE:
        prefix = "M"
    return Unit(measure, scale * _PREFIXES[_ALSO.get(prefix, prefix)])


def _measure(word: str) -> tuple[str, Fraction] | None:
    return _SYMBOLS.get(word) or _WORDS.get(word.lower())


def conversion(unit: str, to: str) -> Conversion:
    """Return the conversion from one unit to another.

    Raises DataError if one of them is not a unit, or their measures differ.
    """
    old, new = parse_unit(unit), parse_unit(to)
    if old.measure != new.measure:
        raise DataError(f"incompatible units: {unit!r} ({old.measure}), {to!r} ({new.measure})")
    factor, plus = old.scale / new.scale, (old.zero - new.zero) / new.scale
    divisor = math.lcm(factor.denominator, plus.denominator)
    return Conversion(int(factor * divisor), int(plus * divisor), divisor)
