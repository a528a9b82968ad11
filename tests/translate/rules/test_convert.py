"""``ccpipe.translate.rules.convert``: value and tag together, or neither of them."""

import logging
from typing import Any

import pytest

from ccpipe.errors import ConfigError
from ccpipe.formats.lineprotocol import decode, encode, to_lines
from ccpipe.message import Message, Uint, Value, event, metric
from ccpipe.translate.rules.convert import Convert


def converted(value: Value, unit: str | None = None, name: str = "m", /, **options: Any) -> Message:
    tags = {"type": "node"} if unit is None else {"type": "node", "unit": unit}
    (message,) = Convert(**options).feed(to_lines([Message(name, tags, value, 1)]))
    return message


def test_convert_changes_value_and_unit_tag() -> None:
    """Value and unit always match."""
    lines = decode(b"m,hostname=a,type=node,unit=kB value=1500i 1740027951\n")
    assert encode(Convert(to="MB").feed(lines)) == (
        b"m,hostname=a,type=node,unit=MB value=1.5 1740027951\n"
    )


def test_convert_takes_unit_from_option_then_tag_then_collectors() -> None:
    """Tags of other programs may be wrong; the configuration overrides them."""
    known = {"m": "GB"}
    assert converted(1, None, to="bytes", units=known).value == 10**9
    assert converted(1, "kB", to="bytes", units=known).value == 1000
    assert converted(1, "kB", to="bytes", units=known, unit="KiB").value == 1024


def test_convert_adds_missing_unit_tag() -> None:
    """Otherwise a second rule would convert again from the old unit."""
    once = Convert(to="MB", units={"m": "kB"})
    (message,) = once.feed(to_lines([metric("m", 1000, time=1, tags={})]))
    assert message == Message("m", {"unit": "MB"}, 1.0, 1)
    assert list(once.feed(to_lines([message]))) == [message]
    assert Convert(to="kB", units={"m": "kB"}).feed(to_lines([message]))[0].value == 1000.0


@pytest.mark.parametrize(
    ("value", "unit", "to", "expected"),
    [
        (3, "kB", "bytes", 3000),
        (Uint(3), "KiB", "bytes", Uint(3072)),
        (4096, "bytes", "KiB", 4.0),
        (5.5, "kB", "bytes", 5500.0),
        (7, "kB", "KB", 7),
    ],
)
def test_convert_keeps_integers_if_factor_allows(
    value: float, unit: str, to: str, expected: float
) -> None:
    """All values of a series have one type, which depends on the factor alone."""
    message = converted(value, unit, to=to)
    assert message.value == expected
    assert type(message.value) is type(expected)
    (row,) = Convert(to=to).feed(decode(encode([Message("m", {"unit": unit}, value, 1)])))
    assert (row.value, type(row.value)) == (expected, type(expected))


@pytest.mark.parametrize("value", [2**62, Uint(2**63), 1e308])
def test_convert_leaves_metric_if_result_cannot_be_encoded(value: float) -> None:
    """Nothing is lost, and the tag still matches the value."""
    message = converted(value, "GB", to="bytes")
    assert (message.value, message.tags["unit"]) == (value, "GB")


def test_convert_ignores_texts_booleans_and_events() -> None:
    """They have no unit, even under a metric's name."""
    assert converted("1", "kB", to="MB").value == "1"
    assert converted(True, "kB", to="MB").tags["unit"] == "kB"
    job = event("job", "start_job", "{}", time=1, tags={"unit": "kB"})
    assert list(Convert(to="MB").feed(to_lines([job]))) == [job]


def test_convert_leaves_and_logs_metric_of_other_dimension_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A rule for ``*`` sees watts too; it does not fill the log every ten seconds."""
    convert = Convert(to="MB")
    watts, nothing = metric("p", 1.0, time=1, tags={"unit": "W"}), metric("n", 1, time=1, tags={})
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            lines = decode(encode([watts, nothing]))
            assert convert.feed(lines) is lines
    assert sorted(record.message for record in caplog.records) == [
        "convert to MB: n is left unchanged: its unit is not known",
        "convert to MB: p is left unchanged: incompatible units: 'W' (watt), 'MB' (byte)",
    ]


def test_convert_applies_to_matching_series() -> None:
    """Names and tags both must match."""
    assert converted(1, "kB", "x", to="MB", names=["m*"]).value == 1
    assert converted(1, "kB", to="MB", tags={"type": "core"}).value == 1
    assert converted(1, "kB", to="MB", names=["m*"], tags={"type": "node"}).value == 0.001


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"to": "MegaFoo"}, "to: unknown unit: 'MegaFoo'"),
        ({"to": "MB", "unit": "x"}, "to: unknown unit: 'x'"),
        ({"to": "MB", "unit": "W"}, r"to: incompatible units: 'W' \(watt\), 'MB' \(byte\)"),
    ],
)
def test_convert_rejects_invalid_units(options: dict[str, Any], reason: str) -> None:
    """Wrong configuration is fatal before anything starts."""
    with pytest.raises(ConfigError, match=reason):
        Convert(**options)
