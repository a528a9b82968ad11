"""Translators that keep records for later, also while they are exchanged: nothing is lost."""

import asyncio
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.errors import ConfigError, UnavailableError
from ccpipe.formats.lineprotocol import Lines, RejectedLine, to_lines
from ccpipe.formats.sonar.envelopes import Envelopes
from ccpipe.message import Message, metric
from ccpipe.pipeline import Batch, HoldingTranslator, Limits, Stages, run
from ccpipe.records import Records
from tests.pipeline.parts import (
    CommitRecorder,
    Delay,
    EventLog,
    Failing,
    ListDeadLetterSink,
    ListSink,
    ListSource,
    made,
    play,
    run_until,
    values,
    virtual,
)


class Pairs(HoldingTranslator[Lines, Lines]):
    """Withholds every other record until the next one arrives; rejects negative ones."""

    takes = gives = Lines

    def __init__(self, mark: str) -> None:
        self.mark = mark
        self.feeds = 0
        self.held: list[Message] = []

    def oldest_held(self) -> int | None:
        """Return the latest feed, where it left one alone."""
        return self.feeds if self.held else None

    def feed(self, records: Lines) -> Lines:
        self.feeds += 1
        bad = [row for row, record in enumerate(records) if float(record.value) < 0]
        rejected = [RejectedLine(0, 0, 0, "negative", records.original(row)) for row in bad]
        self.held += [record for record in records if float(record.value) >= 0]
        ready, self.held = (
            self.held[: len(self.held) // 2 * 2],
            self.held[len(self.held) // 2 * 2 :],
        )
        return to_lines(self._marked(ready), rejected)

    def flush(self) -> Lines:
        held, self.held = self.held, []
        return to_lines(self._marked(held))

    def _marked(self, records: list[Message]) -> list[Message]:
        return [metric(r.name + self.mark, float(r.value), time=0, tags=r.tags) for r in records]


def numbers(*values: float) -> list[Message]:
    return [metric("m", value, time=0, tags={}) for value in values]


def reported(records: Any) -> list[tuple[str, float]]:
    return [(record.name, record.value) for record in records]


def fed(stages: Stages, *values: float) -> list[tuple[str, float]]:
    results = stages.feed(Batch(to_lines(numbers(*values)), origin="test"))
    return [pair for result in results for pair in reported(result.records)]


def flushed(stages: Stages) -> list[tuple[str, float]]:
    return [pair for result in stages.flush() for pair in reported(result.records)]


def test_records_pass_all_stages_in_order() -> None:
    """Output of the first is input of the second; at the end each returns withheld records."""
    stages = Stages([Pairs("a"), Pairs("b")], Lines)
    assert fed(stages, 1, 2, 3) == [("mab", 1), ("mab", 2)]
    assert stages.is_holding
    assert flushed(stages) == [("mab", 3)]
    assert not stages.is_holding


def test_batch_is_complete_when_none_of_it_is_withheld() -> None:
    """Stage by stage: the batch follows the last of its records."""
    stages = Stages([Pairs("a"), Pairs("b")], Lines)

    async def ack() -> None:
        """Do nothing."""

    first, second = Batch(to_lines(numbers(1, 2, 3)), ack), Batch(to_lines(numbers(4)))
    assert [result.complete for result in stages.feed(first)] == [[]]
    [result] = stages.feed(second)
    assert [receipt.ack for receipt in result.complete] == [ack, None]
    assert [number for _, number in result.complete[0].commits] == [1, 2]


def test_replacing_translators_loses_nothing() -> None:
    """Records withheld by the old ones follow with the next feed; the new ones get the rest."""
    stages = Stages([Pairs("a")], Lines)
    assert fed(stages, 1) == []
    stages.replace([Pairs("b")])
    assert fed(stages, 2, 3) == [("ma", 1), ("mb", 2), ("mb", 3)]
    fed(stages, 4)
    stages.replace([])
    assert flushed(stages) == [("mb", 4)]


def test_kept_translator_continues_numbers_of_its_feeds() -> None:
    """A reload must not restart its count."""
    pairs = Pairs("a")
    stages = Stages([pairs], Lines)
    fed(stages, 1)
    stages.replace([pairs, Pairs("b")])
    *_, result = stages.feed(Batch(to_lines(numbers(2))))
    assert result.complete == []
    [result] = stages.feed(Batch(to_lines(numbers(3, 4, 5))))
    commits = [commit for receipt in result.complete for commit in receipt.commits]
    assert [number for commit, number in commits if commit == pairs.commit] == [2, 3]


def test_record_rejected_by_any_stage_becomes_dead_letter() -> None:
    """Each record once, as a line, with reason and origin, also if translators were replaced."""
    stages = Stages([Pairs("a"), Pairs("b")], Lines)
    results = stages.feed(Batch(to_lines(numbers(-1)), origin="test"))
    stages.replace([Pairs("c")])
    results += stages.feed(Batch(to_lines(numbers(-2)), origin="test"))
    letters = [letter for result in results for letter in result.letters]
    assert [(each.original, each.reason, each.origin) for each in letters] == [
        (b"m value=-1i 0", "negative", "test"),
        (b"m value=-2i 0", "negative", "test"),
    ]


@virtual
async def test_records_withheld_by_replaced_translators_need_no_new_batch() -> None:
    """A pipe feeds such translators every second, so nothing waits for a sampler's next slot."""
    stages, sink = Stages([Pairs("a")], Lines), ListSink()
    asyncio.get_running_loop().call_later(0.5, stages.replace, [])
    source = ListSource([numbers(1)], stay=True)
    await run_until(20, source, sink, translators=stages, limits=Limits(max_wait=0))
    assert reported(sink.written) == [("ma", 1)]
    assert sink.tries[0] <= 2


NOW = Limits(max_wait=0)


def written_before_acknowledged(event_log: EventLog) -> bool:
    """Return whether each batch, which contains its own number, was written before its ack."""
    written: set[Any] = set()
    for what, which in event_log:
        if what == "written":
            written |= set(which)
        if what == "ack" and which not in written:
            return False
    return True


@given(st.lists(st.integers(0, 4), max_size=3), st.integers(0, 8))
def test_batch_is_acknowledged_when_all_of_it_is_written(delays: list[int], count: int) -> None:
    """However many translators withhold records for however long, and in their order."""
    event_log: EventLog = []
    source = ListSource([made(n) for n in range(count)], event_log=event_log)
    sink = ListSink(event_log=event_log)
    translators = [Delay(feeds) for feeds in delays]
    play(run(source, sink, translators=translators, limits=NOW))
    assert values(sink.written) == source.acked == list(range(count))
    assert written_before_acknowledged(event_log)


def test_withheld_records_are_not_acknowledged_when_pipe_dies() -> None:
    """The source redelivers them: a crash between reading and writing loses nothing."""
    source = ListSource([made(0), made(1), made(2)], stay=True)
    sink = ListSink(Failing(UnavailableError("gone"), math.inf))
    with pytest.raises(UnavailableError):
        play(run_until(5, source, sink, translators=[Delay(2)], limits=NOW))
    assert source.acked == []


def test_translators_are_fed_every_second_without_batches() -> None:
    """So a quiet source does not delay withheld records."""
    event_log: EventLog = []
    source = ListSource([made(0)], stay=True, event_log=event_log)
    sink = ListSink(event_log=event_log)
    play(run_until(5, source, sink, translators=[Delay(10, seconds=2)], limits=NOW))
    assert sink.tries == [2]
    assert event_log.index(("ack", 0)) < event_log.index(("stop", 5.0))


@pytest.mark.parametrize("is_upstream", [True, False])
@pytest.mark.parametrize("delay", [0, 2])
def test_translator_commit_is_called_for_stored_feeds(delay: int, is_upstream: bool) -> None:
    """After the write and before the acknowledgement, also if a later translator withholds it."""
    event_log: EventLog = []
    source = ListSource([made(n) for n in range(4)], upstream=is_upstream, event_log=event_log)
    play(
        run(
            source,
            ListSink(event_log=event_log),
            translators=[CommitRecorder(event_log), Delay(delay)],
            limits=NOW,
        )
    )
    written: set[Any] = set()
    for what, which in event_log:
        if what == "written":
            written |= set(which)
        if what == "noted":
            assert set(range(which)) <= written
        if what == "ack":
            earlier = event_log[: event_log.index((what, which))]
            assert any(what == "noted" and feed > which for what, feed in earlier)
    noted = [which for what, which in event_log if what == "noted"]
    assert noted == sorted(set(noted))
    assert noted[-1] == 4


def test_translator_commits_several_batches_of_one_write_once() -> None:
    """A commit may require a write to the disk."""
    event_log: EventLog = []
    source = ListSource([made(n) for n in range(4)], event_log=event_log)
    play(
        run(
            source,
            ListSink(),
            translators=[CommitRecorder(event_log)],
            limits=Limits(max_wait=math.inf),
        )
    )
    assert [which for what, which in event_log if what == "noted"] == [4]
    assert source.acked == [0, 1, 2, 3]


def test_batch_is_not_acknowledged_if_commit_fails() -> None:
    """Upstream redelivers it; the pipe continues."""

    class Full(CommitRecorder):
        def commit(self, feed: int) -> None:
            if feed == 1:
                raise UnavailableError("the disk is full")

    event_log: EventLog = []
    source, sink = ListSource([made(0), made(1)], delays=[0, 5]), ListSink()
    play(run(source, sink, translators=[Full(event_log)], limits=NOW))
    assert values(sink.written) == [0, 1]
    assert source.acked == [1]


def test_translator_commit_is_not_called_for_failed_write() -> None:
    """It returns the records again after a restart."""
    event_log: EventLog = []
    source = ListSource([made(0), made(1)], stay=True)
    sink = ListSink(Failing(UnavailableError("gone"), math.inf))
    with pytest.raises(UnavailableError):
        play(run_until(5, source, sink, translators=[CommitRecorder(event_log)], limits=NOW))
    assert event_log == []


def test_record_rejected_by_translator_is_dead_letter() -> None:
    """With its reason, before its batch is acknowledged."""
    kept = ListDeadLetterSink()
    source = ListSource([made(1, -7), made(2)])
    sink = ListSink()
    play(run(source, sink, translators=[Delay(1)], dead_letter_sink=kept, limits=NOW))
    assert values(sink.written) == [1, 2]
    assert kept.numbers == [-7]
    assert kept.letters[0].reason == "below zero"
    assert kept.letters[0].origin == "batch 0"


def test_mismatched_parts_are_refused_before_start() -> None:
    """A sink of lines gets no envelopes: the error names both parts."""

    class EnvelopeSource(ListSource):
        gives: type[Records] = Envelopes

    with pytest.raises(
        ConfigError,
        match=r"source \(EnvelopeSource\) gives envelopes, but the sink \(ListSink\) takes",
    ):
        play(run(EnvelopeSource([]), ListSink()))
