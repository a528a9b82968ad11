"""Translators that are exchanged while their pipe runs."""

import asyncio
from typing import Any

from ccpipe.formats.lineprotocol import Lines, RejectedLine, to_lines
from ccpipe.message import Message, metric
from ccpipe.pipeline import Batch, HoldingTranslator, Limits, Stages
from tests.pipeline.parts import ListSink, ListSource, run_until, virtual


class Pairs(HoldingTranslator[Lines, Lines]):
    """Holds every other record back until the next one comes; rejects negative ones."""

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


def test_records_pass_all_of_them_in_order() -> None:
    """What the first releases reaches the second; at the end each returns what it held."""
    stages = Stages([Pairs("a"), Pairs("b")], Lines)
    assert fed(stages, 1, 2, 3) == [("mab", 1), ("mab", 2)]
    assert stages.is_holding
    assert flushed(stages) == [("mab", 3)]
    assert not stages.is_holding


def test_a_batch_is_complete_when_nothing_of_it_is_held() -> None:
    """Stage by stage: the batch goes with the last of its records."""
    stages = Stages([Pairs("a"), Pairs("b")], Lines)

    async def ack() -> None:
        """Do nothing."""

    first, second = Batch(to_lines(numbers(1, 2, 3)), ack), Batch(to_lines(numbers(4)))
    assert [result.complete for result in stages.feed(first)] == [[]]
    [result] = stages.feed(second)
    assert [receipt.ack for receipt in result.complete] == [ack, None]
    assert [number for _, number in result.complete[0].commits] == [1, 2]


def test_replacing_translators_loses_nothing() -> None:
    """What those before held comes with the next feed, through them; the new ones get the rest."""
    stages = Stages([Pairs("a")], Lines)
    assert fed(stages, 1) == []
    stages.replace([Pairs("b")])
    assert fed(stages, 2, 3) == [("ma", 1), ("mb", 2), ("mb", 3)]
    fed(stages, 4)
    stages.replace([])
    assert flushed(stages) == [("mb", 4)]


def test_a_translator_that_stays_keeps_the_numbers_of_its_feeds() -> None:
    """A reload must not start the count anew: the translator goes on with its own."""
    pairs = Pairs("a")
    stages = Stages([pairs], Lines)
    fed(stages, 1)
    stages.replace([pairs, Pairs("b")])
    *_, result = stages.feed(Batch(to_lines(numbers(2))))
    assert result.complete == []
    [result] = stages.feed(Batch(to_lines(numbers(3, 4, 5))))
    commits = [commit for receipt in result.complete for commit in receipt.commits]
    assert [number for commit, number in commits if commit == pairs.commit] == [2, 3]


def test_what_any_of_them_rejects_becomes_a_dead_letter() -> None:
    """Each record once, as a line, with reason and origin, also where they were replaced."""
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
async def test_in_a_pipe_what_was_held_at_an_exchange_goes_on_without_a_new_batch() -> None:
    """A pipe feeds who may hold every second, so nothing waits for a sampler's next slot."""
    stages, sink = Stages([Pairs("a")], Lines), ListSink()
    asyncio.get_running_loop().call_later(0.5, stages.replace, [])
    source = ListSource([numbers(1)], stay=True)
    await run_until(20, source, sink, translators=stages, limits=Limits(age=0))
    assert reported(sink.written) == [("ma", 1)]
    assert sink.tries[0] <= 2
