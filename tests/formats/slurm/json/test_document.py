"""Both dialects of JSON are read by the same words, and nothing is taken for granted."""

import math
from contextlib import suppress
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.errors import DataError
from ccpipe.formats.slurm.json import document as json_document
from ccpipe.formats.slurm.json.document import JsonObject, read_lists
from ccpipe.formats.slurm.reading import ParsedOutput
from ccpipe.formats.slurm.timestamp import SECOND


def read_names(payload: bytes) -> ParsedOutput[str | None]:
    """Read the names of a document's jobs."""
    return read_lists(payload, {"jobs": lambda job: [job.text("name")]})


def test_the_objects_of_a_list() -> None:
    """Each by itself: a bad one is rejected with its position."""
    reading = read_names(b'{"jobs": [{"name": "a"}, 7, {"name": {"a": 1}}, {"name": "b"}]}')
    assert reading.records == ["a", "b"]
    assert [(bad.line, bad.reason, bad.original) for bad in reading.rejected] == [
        (1, "jobs[1]: not an object", b"7"),
        (2, "jobs[2]: name is no text", b'{"name": {"a": 1}}'),
    ]


def test_what_slurm_reports_is_passed_on() -> None:
    """As the error where there is nothing else, beside the records where there are some."""
    errors = b'"errors": [{"error_number": 2002, "error": "Access/permission denied"}]'
    with pytest.raises(DataError, match="^Slurm reports: Access/permission denied$"):
        read_names(b"{" + errors + b"}")
    reading = read_names(b'{"jobs": [{"name": "a"}], ' + errors + b"}")
    assert reading.records == ["a"]
    assert reading.rejected[0].reason == "Slurm reports: Access/permission denied"


def test_bytes_that_are_not_utf8_cost_nothing_but_themselves() -> None:
    """A user may have named a job so."""
    assert read_names(b'{"jobs": [{"name": "caf\xe9"}]}').records == [
        "caf\N{REPLACEMENT CHARACTER}"
    ]


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (b"", "not JSON of Slurm"),
        (b"[]", "not JSON of Slurm: Expected `object`"),
        (b'{"jobs": 7}', r"not JSON of Slurm: .*\$\.jobs"),
        (b'{"nodes": []}', "no list 'jobs' in the document"),
        (b'{"jobs": [', "not JSON of Slurm"),
        (b'{"a":' * 100_000, "nested too deeply"),
        (b'{"jobs": [' + b"[" * 100_000, "nested too deeply|not JSON"),
    ],
)
def test_what_is_no_document(payload: bytes, reason: str) -> None:
    """It is named, however deep it goes."""
    with pytest.raises(DataError, match=reason):
        read_names(payload)


def test_a_document_that_is_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is refused before it is decoded."""
    monkeypatch.setattr(json_document, "MAX_BYTES", 10)
    with pytest.raises(DataError, match="more than 10 bytes"):
        read_names(b'{"jobs": []}')


def of(value: Any) -> JsonObject:
    """Return an object with one member."""
    return JsonObject({"x": value})


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (7, 7),
        ({"set": True, "infinite": False, "number": 7}, 7),
        ({"set": False, "infinite": False, "number": 0}, None),
        ({"set": False, "infinite": True, "number": 0}, math.inf),
        ({"set": True, "infinite": True, "number": 0}, math.inf),
        ({"number": 7}, None),
        (None, None),
        (True, None),
        (4294967294, None),
        (18446744073709551614, None),
        (4294967295, math.inf),
        (-2, None),
        (-1, math.inf),
        (0.5, 0.5),
    ],
)
def test_numbers_in_both_dialects(value: Any, number: float | None) -> None:
    """Plain, with marks for what is not set, or as an object."""
    assert of(value).amount("x") == number


def test_numbers_in_units() -> None:
    """Minutes and MiB become seconds and bytes; 0 is no time."""
    assert of(30).minutes("x") == 1800
    assert of({"set": False, "infinite": True, "number": 0}).minutes("x") == math.inf
    assert of(600).megabytes("x") == 600 * 2**20
    assert of(1795170748).time("x") == 1795170748 * SECOND
    assert of(0).time("x") is None
    assert of({"seconds": 3, "microseconds": 455483}).seconds("x") == 3.455483
    assert of({"seconds": 0, "microseconds": 1200323}).seconds("x") == 1.200323
    assert of(0).number("x") is None


@pytest.mark.parametrize(
    ("value", "code"),
    [
        (768, (3, 0)),
        (253, (0, 125)),
        (4294967294, (None, None)),
        ({"status": "SUCCESS", "return_code": 0}, (0, 0)),
        ({"status": "PENDING", "return_code": None}, (None, None)),
        ({"return_code": None, "signal": {"signal_id": 11, "name": "Segmentation fault"}}, (0, 11)),
        (
            {
                "status": ["SIGNALED"],
                "return_code": {"set": False, "infinite": False, "number": 0},
                "signal": {"id": {"set": True, "infinite": False, "number": 15}, "name": "Term"},
            },
            (0, 15),
        ),
        (None, (None, None)),
    ],
)
def test_exit_codes_in_all_dialects(value: Any, code: tuple[int | None, int | None]) -> None:
    """A raw status, an object with one signal's number, an object with another's."""
    assert of(value).exit_code("x") == code


def test_states_and_lists_of_words() -> None:
    """One word or several, in capitals; a list, or one text with commas."""
    assert of("down").states("x") == ("DOWN",)
    assert of(["RUNNING", "COMPLETING"]).states("x") == ("RUNNING", "COMPLETING")
    assert of("rack1,amd").words("x") == of(["rack1", "amd"]).words("x") == ("rack1", "amd")
    assert of("").words("x") == of(None).words("x") == of([]).words("x") == ()
    assert of(["a", "", 7]).texts("x") == ("a",)
    assert of("None assigned").word("x") is None


def test_members_that_are_missing() -> None:
    """At any depth, and where something else stands in the way."""
    empty = JsonObject({})
    for found in (
        empty.text("a", "b"),
        empty.amount("a", "b"),
        empty.whole("a"),
        empty.time("a"),
        empty.seconds("a"),
        empty.flag("a"),
        of("text").get("x", "inside"),
    ):
        assert found is None
    assert list(empty.objects("a")) == []


@pytest.mark.parametrize("value", ["7", [7], {"set": True, "number": "7"}, {"set": True}])
def test_what_is_no_number_is_named(value: Any) -> None:
    """With the path of the member; a number that is set and missing is none."""
    if value == {"set": True}:
        assert of(value).amount("x") is None
        return
    with pytest.raises(DataError, match="x is no number"):
        of(value).amount("x")


def test_other_members_that_are_wrong_are_named() -> None:
    """With their path."""
    with pytest.raises(DataError, match="x is no whole number"):
        of(0.5).whole("x")
    with pytest.raises(DataError, match="x is no time"):
        of(10**12).time("x")
    with pytest.raises(DataError, match="x holds something that is no object"):
        list(of([7]).objects("x"))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(JSON)
def test_any_member_is_a_value_or_a_named_error(value: Any) -> None:
    """No member ends in another error."""
    member = of(value)
    for read in (
        member.text, member.word, member.words, member.texts, member.amount, member.whole,
        member.number, member.minutes, member.megabytes, member.time, member.seconds, member.flag,
        member.states, member.exit_code, lambda name: list(member.objects(name)),
    ):  # fmt: skip
        with suppress(DataError):
            read("x")


@given(st.binary(max_size=60) | JSON.map(msgspec.json.encode))
def test_any_bytes_are_a_document_or_a_named_error(payload: bytes) -> None:
    """No bytes end in another error."""
    for document in (payload, b'{"jobs": [' + payload + b"]}"):
        with suppress(DataError):
            read_names(document)
