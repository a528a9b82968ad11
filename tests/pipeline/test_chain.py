"""Translators that are exchanged while their pipe runs."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

from ccpipe.message import Message, metric
from ccpipe.pipeline import Batch, Holding, Limits, Records, run
from ccpipe.pipeline.chain import Chain


class Pairs:
    """Holds every other record back until the next one comes; refuses negative ones."""

    def __init__(self, mark: str) -> None:
        self.mark = mark
        self.held: list[Message] = []
        self.refused: list[tuple[Message, str]] = []

    @property
    def holds(self) -> int:
        """Count what it holds."""
        return len(self.held)

    def feed(self, records: Sequence[Message]) -> list[Message]:
        """Return pairs only."""
        self.refused += [(record, "negative") for record in records if float(record.value) < 0]
        self.held += [record for record in records if float(record.value) >= 0]
        ready, self.held = (
            self.held[: len(self.held) // 2 * 2],
            self.held[len(self.held) // 2 * 2 :],
        )
        return self._marked(ready)

    def flush(self) -> list[Message]:
        """Return what is alone."""
        held, self.held = self.held, []
        return self._marked(held)

    def _marked(self, records: list[Message]) -> list[Message]:
        return [metric(r.name + self.mark, float(r.value), time=0, tags=r.tags) for r in records]


def numbers(*values: float) -> list[Message]:
    """Make metrics of these values."""
    return [metric("m", value, time=0, tags={}) for value in values]


def reported(records: Any) -> list[tuple[str, float]]:
    """Return names and values."""
    return [(record.name, record.value) for record in records]


def test_records_pass_all_of_them_in_order() -> None:
    """What the first lets go reaches the second; at the end each gives what it held."""
    chain = Chain([Pairs("a"), Pairs("b")])
    assert reported(chain.feed(numbers(1, 2, 3))) == [("mab", 1), ("mab", 2)]
    assert isinstance(chain, Holding)
    assert chain.holds == 1
    assert reported(chain.flush()) == [("mab", 3)]
    assert chain.holds == 0


def test_without_translators_records_stay_the_same_object() -> None:
    """Nothing is copied where there is nothing to do."""
    records = numbers(1)
    assert Chain([]).feed(records) is records


def test_an_exchange_loses_nothing() -> None:
    """What those before held comes with the next feed, through them; the new ones get the rest."""
    chain = Chain([Pairs("a")])
    assert reported(chain.feed(numbers(1))) == []
    chain.exchange([Pairs("b")])
    assert reported(chain.feed(numbers(2, 3))) == [("ma", 1), ("mb", 2), ("mb", 3)]
    chain.feed(numbers(4))
    chain.exchange([])
    assert reported(chain.flush()) == [("mb", 4)]


def test_what_any_of_them_refuses_is_refused() -> None:
    """Each refusal once, also one that comes of the exchange."""
    chain = Chain([Pairs("a"), Pairs("b")])
    chain.feed(numbers(-1))
    chain.exchange([Pairs("c")])
    chain.feed(numbers(-2))
    assert [(r.value, why) for r, why in chain.refused] == [(-1, "negative"), (-2, "negative")]


async def test_in_a_pipe_what_was_held_at_an_exchange_goes_on_without_a_new_batch() -> None:
    """A pipe feeds who may hold every second, so nothing waits for a sampler's next slot."""
    chain, stop = Chain([Pairs("a")]), asyncio.Event()
    seen: list[tuple[str, float]] = []

    class One:
        def __init__(self) -> None:
            self.end = asyncio.Event()

        async def __aiter__(self) -> AsyncIterator[Batch]:
            yield Batch(numbers(1))
            chain.exchange([])
            await self.end.wait()

        def stop(self) -> None:
            self.end.set()

    class Keep:
        async def write(self, records: Records) -> None:
            seen.extend(reported(records))
            stop.set()

    async with asyncio.timeout(20):
        await run(One(), Keep(), translators=[chain], limits=Limits(age=0.0), stop=stop)
    assert seen == [("ma", 1)]
