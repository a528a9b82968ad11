"""Records as a list: what is cut and joined keeps what it came from."""

from array import array
from itertools import accumulate
from typing import ClassVar

from hypothesis import given
from hypothesis import strategies as st

from ccpipe.records import Provenance, RecordList, RejectedRecord


class Words(RecordList[str]):
    """Records of a plug-in."""

    name: ClassVar[str] = "words"


def words_of(counts: list[int]) -> Words:
    made = [str(message) for message, count in enumerate(counts) for _ in range(count)]
    origins = [str(message) for message in range(len(counts))]
    return Words(made, provenance=Provenance.of_messages(origins, array("q", accumulate(counts))))


def origins_of(words: Words) -> list[str]:
    assert words.provenance is not None
    found: list[str] = []
    for origin, end in zip(words.provenance.origins, words.provenance.ends, strict=True):
        found += [origin] * (end - len(found))
    return found


counts = st.lists(st.integers(0, 3), max_size=6)


@given(counts, st.integers(0, 20), st.integers(0, 20))
def test_consecutive_records_keep_their_messages(counts: list[int], start: int, stop: int) -> None:
    """A slice is of the same type."""
    part = words_of(counts)[start : max(start, stop)]
    assert isinstance(part, Words)
    assert origins_of(part) == list(part)


@given(counts, st.integers(0, 2**20))
def test_records_that_are_taken_keep_their_messages(counts: list[int], bits: int) -> None:
    """Whatever a rule takes away."""
    words = words_of(counts)
    taken = words.take([bits >> index & 1 for index in range(len(words))])
    assert list(taken) == [word for index, word in enumerate(words) if bits >> index & 1]
    assert origins_of(taken) == list(taken)


def test_joined_records_have_all_messages_and_all_that_was_rejected() -> None:
    """In order; sizes add up."""
    bad = RejectedRecord(b"x", "no word", 2)
    joined = Words.concat([words_of([2]), Words(["0"], rejected=[bad], size=7)])
    assert (list(joined), joined.rejected) == (["0", "0", "0"], [bad])
    assert joined.size == words_of([2]).size + 7
    assert joined.original(0) == b"'0'"
