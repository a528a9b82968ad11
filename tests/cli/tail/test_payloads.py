"""Payloads that are no line protocol, as rows: Sonar's envelopes and dead letters."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.bus.nats.protocol.frames import Delivery, write_header
from ccpipe.cli.tail.payloads import (
    MAX_EXCERPT,
    dead_row,
    envelopes,
    sonar_row,
    type_and_attributes,
)

NOON = 1_740_052_800 * 10**9
SAMPLE = {
    "data": {
        "type": "sample",
        "attributes": {
            "time": "2025-02-20T06:05:51+01:00", "cluster": "fox", "node": "e1",
            "system": {"cpus": [1, 2], "load1": 3}, "jobs": [{"job": 7}], "note": "x",
        },
    },
}  # fmt: skip
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["data", "attributes", "time", "type", "errors"]), inner)
    ),
)


def letter(payload: bytes, **headers: str) -> Delivery:
    named = {f"Ccpipe-{name.capitalize()}": value for name, value in headers.items()}
    return Delivery("fox.dead", payload, write_header(named), f"$JS.ACK.s.c.1.1.1.{NOON}.0")


def test_a_payload_is_one_envelope_or_one_on_each_line() -> None:
    """An envelope may be written on several lines; of many, each has its own."""
    assert list(envelopes(json.dumps(SAMPLE).encode())) == [SAMPLE]
    many = b'{"a":1}\n\n{"b":2}\n'
    assert list(envelopes(many)) == [{"a": 1}, {"b": 2}]
    with pytest.raises(ValueError, match="malformed"):
        list(envelopes(b"{broken"))


def test_an_envelope_is_data_or_errors() -> None:
    """Of one with errors only, the first error says cluster and node."""
    assert type_and_attributes(SAMPLE)[0] == "sample"
    errors = {"errors": [{"cluster": "fox", "node": "e1", "detail": "no sacct"}]}
    assert type_and_attributes(errors) == ("errors", errors["errors"][0])
    assert type_and_attributes({}) == ("errors", {})


def test_a_row_counts_what_lists_hold() -> None:
    """With all of it below where it is asked for."""
    row = sonar_row(SAMPLE, NOON, whole=False)
    assert row.cells[1:] == ["e1", "sonar.sample", "", "", "fox", "system (cpus 2), jobs 1, note=x"]
    assert row.marks == ()
    assert json.loads("\n".join(sonar_row(SAMPLE, NOON, whole=True).marks)) == SAMPLE


@given(st.dictionaries(st.sampled_from(["data", "errors", "x"]), JSON))
def test_any_object_is_a_row(envelope: dict[str, Any]) -> None:
    """Whatever stands on the subject."""
    assert len(sonar_row(envelope, NOON, whole=True).cells) == 7


def test_a_dead_letter_says_why_from_where_and_how_it_begins() -> None:
    """A long one is cut; one without headers is shown all the same."""
    row = dead_row(letter(b"bad \xff", reason="no good", origin="fox.metrics", line="3"))
    assert row.cells[5:] == ["fox", "fox.metrics line 3: no good: bad \ufffd"]
    cut = dead_row(letter(b"x" * 1000)).cells[6]
    assert cut == "?: no reason given: " + "x" * MAX_EXCERPT
