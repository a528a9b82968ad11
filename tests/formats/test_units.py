"""``ccpipe.formats.units``: parsing and exact conversion."""

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.errors import DataError
from ccpipe.formats.units import Unit, conversion, parse_unit
from ccpipe.message import Uint
from ccpipe.node.sampling.collector import units


@pytest.mark.parametrize(
    ("text", "measure", "scale"),
    [
        ("bytes", "byte", 1),
        ("B", "byte", 1),
        ("kB", "byte", 1000),
        ("KB", "byte", 1000),
        ("KiB", "byte", 1024),
        ("MByte/s", "byte/second", 10**6),
        ("Mbyte/s", "byte/second", 10**6),
        ("mbyte", "byte", 10**6),
        ("GBytes", "byte", 10**9),
        ("512 bytes", "byte", 512),
        ("kbit/s", "byte/second", 125),
        ("MFlops/s", "flop/second", 10**6),
        ("F/s", "flop/second", 1),
        ("MHz", "hertz", 10**6),
        ("Hz", "hertz", 1),
        ("ms", "second", Fraction(1, 1000)),
        ("min", "second", 60),
        ("mW", "watt", Fraction(1, 1000)),
        ("Watts", "watt", 1),
        ("kWh", "joule", 3_600_000),
        ("packets/s", "packet/second", 1),
        ("Percent", "percent", 1),
        ("%", "percent", 1),
        ("ratio", "percent", 100),
        ("RPM", "revolution", 1),
        ("PB", "byte", 10**15),
        ("Pkts", "packet", 1),
    ],
)
def test_parser_reads_units(text: str, measure: str, scale: Fraction) -> None:
    """Prefixes, plurals, any case; a lower-case m is mega for countable units (ccUnits)."""
    assert parse_unit(text) == Unit(measure, Fraction(scale))


@pytest.mark.parametrize(
    "text", ["", "foobar", "Gb", "b", "bytes/", "/s", "k", "bytes/s/s", "0 bytes", "bytes/foo"]
)
def test_parser_names_invalid_unit(text: str) -> None:
    with pytest.raises(DataError, match="not a|unknown") as refused:
        parse_unit(text)
    assert repr(text) in str(refused.value)


def test_parser_knows_units_of_all_collectors() -> None:
    for name, unit in units().items():
        assert parse_unit(unit).scale > 0, name


@pytest.mark.parametrize(
    ("value", "unit", "to", "expected"),
    [
        (3, "kB", "bytes", 3000),
        (3, "KiB", "bytes", 3072),
        (Uint(3), "KiB", "bytes", Uint(3072)),
        (1_500_000, "bytes/s", "MByte/s", 1.5),
        (100, "degC", "degF", 212.0),
        (-40.0, "degF", "degC", -40.0),
        (0.25, "GHz", "MHz", 250.0),
        (2, "min", "s", 120),
        (7200, "s", "h", 2.0),
        (1, "kWh", "kJ", 3600),
        (8, "sectors", "bytes", None),
    ],
)
def test_conversion_converts_values(
    value: float, unit: str, to: str, expected: float | None
) -> None:
    if expected is None:
        with pytest.raises(DataError):
            conversion(unit, to)
        return
    converted = conversion(unit, to)(value)
    assert converted == expected
    assert type(converted) is type(expected)


def test_conversion_rejects_units_of_different_measures() -> None:
    with pytest.raises(DataError, match=r"incompatible units: 'W' \(watt\), 'MB' \(byte\)"):
        conversion("W", "MB")


UNITS = st.sampled_from(["B", "kB", "KiB", "MByte", "GiB", "TB", "512 bytes", "kbit", "EiB"])
TEMPERATURES = st.sampled_from(["degC", "degF"])
PAIRS = st.tuples(UNITS, UNITS) | st.tuples(TEMPERATURES, TEMPERATURES)
INTEGERS = st.integers(-(2**63), 2**63 - 1) | st.integers(0, 2**64 - 1).map(Uint)


@given(INTEGERS, PAIRS)
def test_conversion_keeps_integers_exact_if_possible(value: int, pair: tuple[str, str]) -> None:
    old, new = (parse_unit(unit) for unit in pair)
    true = (value * old.scale + old.zero - new.zero) / new.scale
    converted = conversion(*pair)(value)
    factor, shift = old.scale / new.scale, (old.zero - new.zero) / new.scale
    if factor.denominator == shift.denominator == 1:
        writable = 0 <= true < 2**64 if isinstance(value, Uint) else -(2**63) <= true < 2**63
        assert converted == (true if writable else None)
        assert converted is None or type(converted) is type(value)
    else:
        assert converted == float(true)
        assert type(converted) is float


@given(st.floats(), PAIRS)
def test_conversion_keeps_floats_finite(value: float, pair: tuple[str, str]) -> None:
    converted = conversion(*pair)(value)
    if converted is None:
        # Overflow of a double, perhaps in between: the factors are below 2**70.
        assert not abs(value) < 1e280
        return
    assert type(converted) is float
    assert math.isfinite(converted)
    back = conversion(*reversed(pair))(converted)
    assert back is None or math.isclose(back, value, rel_tol=1e-12, abs_tol=1e-12)
