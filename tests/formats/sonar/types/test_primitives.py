"""Rules of the primitive types, strict and tolerant."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.formats.sonar import INFINITE, UNSET, ExtendedUint, decode
from ccpipe.formats.sonar.types.meta import ErrorObject, KVPair
from ccpipe.formats.sonar.types.primitives import (
    Hostname,
    NodeRange,
    NonemptyString,
    NonzeroUint,
    OptionalTimestamp,
    Primitive,
    Record,
    Timestamp,
    fields,
)


class Example(Record, frozen=True):
    """One field of each primitive type."""

    nonempty: NonemptyString = ""
    nonzero: NonzeroUint = 0
    time: Timestamp = ""
    optional_time: OptionalTimestamp = ""
    host: Hostname = ""
    nodes: NodeRange = ""


def rule(name: str) -> Primitive:
    primitive = fields(Example)[name].primitive
    assert primitive is not None
    return primitive


CHECKS = [
    ("nonempty", "x", True),
    ("nonempty", "", False),
    ("nonzero", 1, True),
    ("nonzero", 0, False),
    ("time", "2025-04-07T14:17:11+02:00", True),
    ("time", "2025-04-07T14:17:11+00:00", False),
    ("time", "2025-04-07T14:17:11", False),
    ("time", "", False),
    ("optional_time", "", True),
    ("optional_time", "2025-04-31T14:17:11Z", False),
    ("host", "c1-6.fox", True),
    ("host", "c1-.fox", False),
    ("host", "a" * 64, False),
    ("host", ".".join(["a" * 63] * 4), False),
    ("host", "", False),
    ("nodes", "c[1-3,5]-[2-4].fox", True),
    ("nodes", "c[3-1]", False),
    ("nodes", "", False),
]


@pytest.mark.parametrize(("name", "value", "conforms"), CHECKS)
def test_rule_decides_on_value(name: str, value: object, *, conforms: bool) -> None:
    """By the specification's *Data types*."""
    assert bool(rule(name).strict(value)) is conforms


@given(st.text(max_size=20))
def test_rule_decides_on_any_text(text: str) -> None:
    """Without exceptions; every strict time is readable."""
    for name in ("nonempty", "time", "optional_time", "host", "nodes"):
        assert rule(name).strict(text) in (True, False)
    tolerant = rule("time").tolerant
    assert tolerant is not None
    assert tolerant(text) or not rule("time").strict(text)


@pytest.mark.parametrize("name", Example.__struct_fields__)
def test_default_of_required_type_breaks_its_rule(name: str) -> None:
    """A missing field is detected by its default value."""
    default = fields(Example)[name].default
    assert bool(rule(name).strict(default)) is not rule(name).required


def test_record_is_immutable_and_rejects_unknown_field() -> None:
    pair = KVPair("key", "value")
    with pytest.raises(AttributeError, match="immutable"):
        pair.value = "other"  # type: ignore[misc]
    with pytest.raises(msgspec.ValidationError, match="unknown field"):
        msgspec.json.decode(b'{"detail": "x", "more": 1}', type=ErrorObject)


@given(st.integers(0, 2**64 - 1))
def test_extended_uint_restores_any_wire_number(number: int) -> None:
    """Every number of 64 bits."""
    read = ExtendedUint.from_wire(number)
    assert read.wire == number
    assert read.value == (number - 2 if number >= 2 else None)
    assert (read == UNSET) == (number == 0) == (not read)
    assert (read == INFINITE) == (number == 1) == read.is_infinite


@given(st.integers(0, 2**64 - 3))
def test_extended_uint_is_written_as_value_plus_two(value: int) -> None:
    """The specification's v+2."""
    assert ExtendedUint(value).wire == value + 2
    assert ExtendedUint(value) == ExtendedUint.from_wire(value + 2)


@pytest.mark.parametrize("value", [-1, 2**64 - 2])
def test_extended_uint_rejects_two_largest_values(value: int) -> None:
    """Two numbers are reserved."""
    with pytest.raises(ValueError, match="outside"):
        ExtendedUint(value)


def test_extended_uint_repr_shows_value() -> None:
    """Not the wire number; it does not compare equal to integers."""
    shown = [repr(x) for x in (ExtendedUint(90), UNSET, INFINITE)]
    assert shown == ["ExtendedUint(90)", "ExtendedUint(UNSET)", "ExtendedUint(INFINITE)"]
    assert ExtendedUint(90) != 92
    assert len({ExtendedUint(1), ExtendedUint(1), UNSET}) == 2


@pytest.mark.parametrize("written", ["-1", "1.0", '"5"', "true", "[]"])
def test_extended_uint_rejects_other_json_with_path(written: str) -> None:
    """Only an integer of 64 bits is one."""
    attributes = '{"slurm_jobs":[{},{"time_limit":' + written + "}]}"
    payload = '{"meta":{},"data":{"type":"job","attributes":' + attributes + "}}"
    (bad,) = decode(payload.encode()).rejected
    assert bad.path == "$.data.attributes.slurm_jobs[1].time_limit"
