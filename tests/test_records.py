"""Lists of records: slices and joined lists keep their messages."""

from array import array
from itertools import accumulate, pairwise
from typing import ClassVar

from hypothesis import given
from hypothesis import strategies as st

from ccpipe.records import (
    MessageRange,
    Provenance,
    RecordList,
    RejectedRecord,
    merged_ranges,
)
from tests.deliveries import provenance_of


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
def test_slice_of_record_list_keeps_messages(counts: list[int], start: int, stop: int) -> None:
    """A slice is of the same type."""
    part = words_of(counts)[start : max(start, stop)]
    assert isinstance(part, Words)
    assert origins_of(part) == list(part)


@given(counts, st.integers(0, 2**20))
def test_selected_records_of_list_keep_messages(counts: list[int], bits: int) -> None:
    """Whichever a rule removes."""
    words = words_of(counts)
    taken = words.take([bits >> index & 1 for index in range(len(words))])
    assert list(taken) == [word for index, word in enumerate(words) if bits >> index & 1]
    assert origins_of(taken) == list(taken)


def test_joined_record_lists_keep_messages_and_rejected() -> None:
    """In order; sizes are summed."""
    bad = RejectedRecord(b"x", "no word", 2)
    joined = Words.concat([words_of([2]), Words(["0"], rejected=[bad], size=7)])
    assert (list(joined), joined.rejected) == (["0", "0", "0"], [bad])
    assert joined.size == words_of([2]).size + 7
    assert joined.original(0) == b"'0'"


messages = st.lists(
    st.tuples(st.sampled_from(["", "a", "b"]), st.integers(1, 30), st.integers(0, 3)), max_size=20
)
"""Consumer, number and records of each message."""


def ids_of(chosen: list[tuple[str, int, int]]) -> Provenance:
    ends, total = array("q"), 0
    for *_, count in chosen:
        total += count
        ends.append(total)
    numbers = array("q", [number for _, number, _ in chosen])
    times = array("q", [100 + number for number in numbers])
    return provenance_of([consumer for consumer, *_ in chosen], numbers, times, ends)


def per_record(ids: Provenance) -> list[tuple[str, int]]:
    found: list[tuple[str, int]] = []
    for consumer, number, end in zip(ids.consumers, ids.numbers, ids.ends, strict=True):
        found += [(consumer, number)] * (end - len(found))
    return found


@given(messages)
def test_runs_have_known_messages_only(chosen: list[tuple[str, int, int]]) -> None:
    runs = ids_of(chosen).runs()
    held = {(run.consumer, n) for run in runs for n in range(run.first, run.last + 1)}
    assert held == {(consumer, number) for consumer, number, _ in chosen if consumer}
    assert all(run.since == 100 + run.first and run.until == 100 + run.last for run in runs)
    assert runs == sorted(runs)
    assert all((a.consumer, a.last + 1) < (b.consumer, b.first) for a, b in pairwise(runs))


def test_messages_of_recreated_stream_are_other_runs() -> None:
    """A recreated stream reuses the numbers of earlier messages."""
    numbers, times = array("q", [1, 2, 1, 3]), array("q", [10, 20, 90, 30])
    ids = provenance_of(["c"] * 4, numbers, times, array("q", [1, 2, 3, 4]))
    found = {(run.first, run.last, run.since, run.until) for run in ids.runs()}
    assert sum(last - first + 1 for first, last, *_ in found) == 4
    assert ids.unstored([])[0] is None


@given(messages, st.integers(0, 4))
def test_large_message_becomes_part_of_its_own(
    chosen: list[tuple[str, int, int]], size: int
) -> None:
    """Every record is in one part."""
    ids = ids_of(chosen)
    parts = list(ids.large(size))
    ends = [end for end, _ in parts]
    assert ends == sorted(set(ends))
    assert ends[-1:] == ([ids.ends[-1]] if ids.ends and ids.ends[-1] else [])
    expected = [
        (end, (consumer, number, 100 + number))
        for (consumer, number, count), end in zip(chosen, ids.ends, strict=True)
        if consumer and count and count >= size
    ]
    assert [part for part in parts if part[1]] == expected
    assert not any(a is b is None for (_, a), (_, b) in pairwise(parts))


@given(messages, messages)
def test_unstored_keeps_records_of_unstored_messages(
    chosen: list[tuple[str, int, int]], before: list[tuple[str, int, int]]
) -> None:
    """Of a message that occurs twice the first."""
    ids, stored = ids_of(chosen), ids_of(before).runs()
    known = {(consumer, number) for consumer, number, _ in before if consumer}
    keep, runs = ids.unstored(stored)
    expected: list[bool] = []
    seen = set(known)
    for consumer, number, count in chosen:
        expected += [(consumer, number) not in seen] * count
        seen |= {(consumer, number)} if consumer else set()
    assert (list(map(bool, keep)) if keep is not None else [True] * len(expected)) == expected
    left = {(consumer, n) for consumer, n, _ in chosen if consumer} - known
    assert {(run.consumer, n) for run in runs for n in range(run.first, run.last + 1)} == left


@given(messages, messages)
def test_concat_keeps_messages(
    first: list[tuple[str, int, int]], second: list[tuple[str, int, int]]
) -> None:
    parts = [ids_of(first), ids_of(second)]
    joined = Provenance.concat([(each, each.ends[-1] if each.ends else 0) for each in parts])
    assert joined is not None
    assert per_record(joined) == per_record(ids_of(first)) + per_record(ids_of(second))


@given(messages, st.data())
def test_take_keeps_messages(chosen: list[tuple[str, int, int]], data: st.DataObject) -> None:
    whole = per_record(ids_of(chosen))
    bad = data.draw(st.sets(st.integers(0, len(whole) - 1))) if whole else set()
    left = [record for row, record in enumerate(whole) if row not in bad]
    assert (
        per_record(ids_of(chosen).take(bytes(row not in bad for row in range(len(whole))))) == left
    )


@given(messages, st.data())
def test_split_assigns_message_to_part_with_its_last_record(
    chosen: list[tuple[str, int, int]], data: st.DataObject
) -> None:
    """So that the message is complete when that part is stored."""
    ids = ids_of(chosen)
    whole = per_record(ids)
    row = data.draw(st.integers(0, len(whole)))
    first, second = ids.split(row)
    assert per_record(second) == whole[row:]
    assert len(per_record(first)) == row
    for part, original in zip(per_record(first), whole[:row], strict=True):
        assert part == original or part[0] == ""
    names = [[m for m in zip(p.consumers, p.numbers, strict=True) if m[0]] for p in (first, second)]
    assert names[0] + names[1] == [(c, n) for c, n, _ in chosen if c]


@given(messages, st.data())
def test_split_near_row_keeps_messages_whole(
    chosen: list[tuple[str, int, int]], data: st.DataObject
) -> None:
    """Both sides have records, and only a message that is alone is split."""
    ids = ids_of(chosen)
    total = len(per_record(ids))
    if total < 2:
        return
    row = data.draw(st.integers(1, total - 1))
    point = ids.split_point(row)
    assert 0 < point < total
    assert point in ids.ends or all(end in (0, total) for end in ids.ends)


def test_runs_overlap_if_number_time_and_consumer_agree() -> None:
    """Numbers alone are not sufficient."""
    run = MessageRange("c", 10, 20, 1000, 2000)
    assert run.overlaps(MessageRange("c", 20, 30, 2000, 3000))
    assert not run.overlaps(MessageRange("c", 21, 30, 2000, 3000))
    assert not run.overlaps(MessageRange("c", 10, 20, 2001, 3000))
    assert not run.overlaps(MessageRange("d", 10, 20, 1000, 2000))


@given(messages, st.integers(0, 40), st.integers(0, 40))
def test_part_keeps_messages(chosen: list[tuple[str, int, int]], first: int, last: int) -> None:
    whole = per_record(ids_of(chosen))
    assert per_record(ids_of(chosen).part(slice(first, last))) == whole[first:last]


def run_of(consumer: str, first: int, size: int) -> MessageRange:
    last = first + size
    return MessageRange(consumer, first, last, 1000 + first, 1000 + last)


runs = st.builds(run_of, st.sampled_from("ab"), st.integers(1, 60), st.integers(0, 9))


def numbers_of(found: list[MessageRange]) -> set[tuple[str, int]]:
    return {(run.consumer, n) for run in found for n in range(run.first, run.last + 1)}


@given(st.lists(runs, max_size=20))
def test_merged_ranges_cover_the_same_messages(given_: list[MessageRange]) -> None:
    """No two of a consumer could be merged further."""
    found = merged_ranges(given_)
    assert numbers_of(found) == numbers_of(given_)
    for before, after in pairwise(found):
        assert before.consumer != after.consumer or after.first > before.last + 1
