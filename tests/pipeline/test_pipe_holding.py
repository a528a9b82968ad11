"""Translators that keep records for later: nothing is acknowledged that is not written."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.errors import ConfigError, UnavailableError
from ccpipe.formats.sonar.envelopes import Envelopes
from ccpipe.pipeline import Limits, run
from ccpipe.records import Records
from tests.pipeline.parts import (
    Delay,
    Diary,
    Failing,
    ListDeadLetterSink,
    ListSink,
    ListSource,
    Notebook,
    made,
    play,
    run_until,
    values,
)

NOW = Limits(age=0)


def written_before_acknowledged(diary: Diary) -> bool:
    """Return whether each batch, which holds the number that it has, was written before its ack."""
    written: set[Any] = set()
    for what, which in diary:
        if what == "written":
            written |= set(which)
        if what == "ack" and which not in written:
            return False
    return True


@given(st.lists(st.integers(0, 4), max_size=3), st.integers(0, 8))
def test_a_batch_is_acknowledged_when_all_of_it_is_written(delays: list[int], count: int) -> None:
    """However many translators keep records for however long, and in their order."""
    diary: Diary = []
    source = ListSource([made(n) for n in range(count)], diary=diary)
    sink = ListSink(diary=diary)
    translators = [Delay(feeds) for feeds in delays]
    play(run(source, sink, translators=translators, limits=NOW))
    assert values(sink.written) == source.acked == list(range(count))
    assert written_before_acknowledged(diary)


def test_what_is_held_is_not_acknowledged_when_the_pipe_dies() -> None:
    """The source hands it over again: a crash between reading and writing loses nothing."""
    source = ListSource([made(0), made(1), made(2)], stay=True)
    sink = ListSink(Failing(UnavailableError("gone"), math.inf))
    with pytest.raises(UnavailableError):
        play(run_until(5, source, sink, translators=[Delay(2)], limits=NOW))
    assert source.acked == []


def test_a_quiet_source_does_not_keep_records_held() -> None:
    """Every second a translator that holds is asked, whether or not anything comes."""
    diary: Diary = []
    source = ListSource([made(0)], stay=True, diary=diary)
    sink = ListSink(diary=diary)
    play(run_until(5, source, sink, translators=[Delay(10, seconds=2)], limits=NOW))
    assert sink.tries == [2]
    assert diary.index(("ack", 0)) < diary.index(("stop", 5.0))


@pytest.mark.parametrize("is_upstream", [True, False])
@pytest.mark.parametrize("delay", [0, 2])
def test_a_translator_is_told_what_is_safe(delay: int, is_upstream: bool) -> None:
    """After the write and before the acknowledgement, also where a later translator holds it."""
    diary: Diary = []
    source = ListSource([made(n) for n in range(4)], upstream=is_upstream, diary=diary)
    play(
        run(source, ListSink(diary=diary), translators=[Notebook(diary), Delay(delay)], limits=NOW)
    )
    written: set[Any] = set()
    for what, which in diary:
        if what == "written":
            written |= set(which)
        if what == "noted":
            assert set(range(which)) <= written
        if what == "ack":
            earlier = diary[: diary.index((what, which))]
            assert any(what == "noted" and feed > which for what, feed in earlier)
    noted = [which for what, which in diary if what == "noted"]
    assert noted == sorted(set(noted))
    assert noted[-1] == 4


def test_one_write_of_several_batches_is_noted_once() -> None:
    """A note may cost a write to the disk."""
    diary: Diary = []
    source = ListSource([made(n) for n in range(4)], diary=diary)
    play(run(source, ListSink(), translators=[Notebook(diary)], limits=Limits(age=math.inf)))
    assert [which for what, which in diary if what == "noted"] == [4]
    assert source.acked == [0, 1, 2, 3]


def test_where_a_note_cannot_be_taken_nothing_is_acknowledged() -> None:
    """Upstream hands it over again; the pipe goes on."""

    class Full(Notebook):
        def commit(self, feed: int) -> None:
            if feed == 1:
                raise UnavailableError("the disk is full")

    diary: Diary = []
    source, sink = ListSource([made(0), made(1)], delays=[0, 5]), ListSink()
    play(run(source, sink, translators=[Full(diary)], limits=NOW))
    assert values(sink.written) == [0, 1]
    assert source.acked == [1]


def test_a_translator_hears_nothing_of_what_was_not_written() -> None:
    """It gives it again after a restart."""
    diary: Diary = []
    source = ListSource([made(0), made(1)], stay=True)
    sink = ListSink(Failing(UnavailableError("gone"), math.inf))
    with pytest.raises(UnavailableError):
        play(run_until(5, source, sink, translators=[Notebook(diary)], limits=NOW))
    assert diary == []


def test_what_a_translator_refuses_is_a_dead_letter() -> None:
    """With its reason, before the batch that it came with is acknowledged."""
    kept = ListDeadLetterSink()
    source = ListSource([made(1, -7), made(2)])
    sink = ListSink()
    play(run(source, sink, translators=[Delay(1)], dead_letter_sink=kept, limits=NOW))
    assert values(sink.written) == [1, 2]
    assert kept.numbers == [-7]
    assert kept.letters[0].reason == "below zero"
    assert kept.letters[0].origin == "batch 0"


def test_parts_that_do_not_fit_are_refused_before_the_start() -> None:
    """A sink of lines gets no envelopes: the error names both parts."""

    class EnvelopeSource(ListSource):
        gives: type[Records] = Envelopes

    with pytest.raises(ConfigError, match="EnvelopeSource gives envelopes, but ListSink takes"):
        play(run(EnvelopeSource([]), ListSink()))
