"""Delivery: attempts, their time limits, and the item of each record of a write."""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.errors import RejectedError, TimedOutError, UnavailableError
from ccpipe.formats.lineprotocol import Lines
from ccpipe.message import Message
from ccpipe.pipeline import Limits, TimedSink, run
from ccpipe.pipeline.delivery import MAX_SECONDS, Attempts, Portion, TimeLimit
from ccpipe.pipeline.stages import Item
from ccpipe.telemetry import Telemetry
from tests.pipeline.parts import ListSink, ListSource, clock, made, play, values, virtual


def portion(sizes: list[int]) -> Portion:
    """Join items of some sizes; the value of each record is its number."""

    async def items() -> list[Item]:
        numbers = iter(range(sum(sizes)))
        return [
            Item(made(*(next(numbers) for _ in range(size))), f"item {place}")
            for place, size in enumerate(sizes)
        ]

    found = play(items())
    return Portion.of(found)


SIZES = st.lists(st.integers(1, 5), min_size=1, max_size=6)


@given(SIZES, st.data())
def test_portion_keeps_item_of_each_record_after_any_split(
    sizes: list[int], data: st.DataObject
) -> None:
    """Halves and portions without bad records name the same origin for a record."""
    origins = [f"item {place}" for place, size in enumerate(sizes) for _ in range(size)]
    left = [portion(sizes)]
    for _ in range(data.draw(st.integers(0, 6))):
        split = [each for each in left if len(each.records) > 1]
        if not split:
            break
        chosen = data.draw(st.sampled_from(split))
        left.remove(chosen)
        left += reversed(chosen.halves())
    for each in left:
        bad = data.draw(st.sets(st.integers(0, len(each.records) - 1)))
        kept = each.without(sorted(bad))
        assert sum(len(part.records) for part in kept) == len(each.records) - len(bad)
        for part in (each, *kept):
            for index, value in enumerate(values(part.records)):
                assert part.dead_letter(index, "bad").origin == origins[int(value)]


def test_attempts_log_same_reason_once_a_minute_for_hours(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The log of any few minutes shows that the failure continues."""

    async def main() -> None:
        async def fail() -> None:
            if clock() < 7200:
                raise UnavailableError("the store is unavailable")

        await Attempts(Limits(), Telemetry()).retry(fail, "sink")

    play(main())
    assert 80 <= sum("the store is unavailable" in each.message for each in caplog.records) <= 121


@virtual
async def test_attempts_wait_as_long_as_store_asks() -> None:
    """And no longer than by their own pauses otherwise."""
    tries: list[float] = []

    async def fail() -> None:
        tries.append(clock())
        if len(tries) < 3:
            raise UnavailableError("overloaded", retry_after=90.0 if len(tries) == 1 else 0.0)

    await Attempts(Limits(), Telemetry()).retry(fail, "sink")
    assert 90 <= tries[1] - tries[0] < 91
    assert tries[2] - tries[1] < 1


@virtual
async def test_attempts_do_not_retry_other_errors() -> None:
    """A TimeoutError of the part itself is not mistaken for ours."""

    async def fail(error: Exception) -> None:
        raise error

    attempts = Attempts(Limits(), Telemetry())
    for error in (RejectedError("no"), TimeoutError("its own")):
        with pytest.raises(type(error), match=str(error)):
            await attempts.retry(lambda error=error: fail(error), "sink")  # type: ignore[misc]


BATCHES = 40
LINES = 500


class Slow(ListSink, TimedSink[Lines]):
    """Stores whatever it is sent, but later than its own time limit allows."""

    def __init__(self, needs: Callable[[int], float], time_limit: float = 10.0) -> None:
        super().__init__()
        self.needs = needs
        self.time_limit = time_limit

    async def write(self, records: Sequence[Message]) -> None:
        self.tries.append(clock())
        self.written.extend(records)  # also of abandoned writes
        seconds = self.needs(len(records))
        await asyncio.sleep(min(seconds, self.time_limit))
        if seconds > self.time_limit:
            raise TimedOutError("no answer in time")


def constant(_: int) -> float:
    """Answer after twelve seconds, whatever is sent."""
    return 12.0


def growing(lines: int) -> float:
    return 1 + lines / 50


def enormous(_: int) -> float:
    return 150.0


@pytest.mark.parametrize(("needs", "tries"), [(constant, 30), (growing, 30), (enormous, 200)])
def test_store_slower_than_its_time_limit_gets_everything(
    needs: Callable[[int], float], tries: int
) -> None:
    """All is acknowledged, few records are stored more than once, and writes are large again.

    They stay small only if the largest limit is too short.
    """
    sink = Slow(needs)
    source = ListSource([made(*range(n * LINES, (n + 1) * LINES)) for n in range(BATCHES)])
    play(run(source, sink, limits=Limits(max_records=5000, write_timeout=30)))
    assert source.acked == list(range(BATCHES))
    copies = Counter(values(sink.written))
    assert set(copies) == set(range(BATCHES * LINES))
    assert sum(copies.values()) / len(copies) < 2.5
    assert max(copies.values()) <= 6
    assert len(sink.tries) < tries


def test_raised_time_limit_is_logged_with_key_to_raise(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The sink's own limit by its option, the pipe's by the recipe's."""
    play(run(ListSource([made(1)]), Slow(constant)))
    assert "no answer in time; the time limit is now 20 s: raise sink.timeout" in caplog.text
    caplog.clear()
    play(run(ListSource([made(1)]), ListSink(seconds=50), limits=Limits(write_timeout=30)))
    assert (
        "the write timed out; the time limit is now 60 s: raise batch.write_timeout" in caplog.text
    )


def test_time_limit_decreases_when_store_is_fast_again() -> None:
    """It is never below the configured one, nor above the maximum."""
    sink = Slow(constant)
    limit = TimeLimit(Limits(write_timeout=30), sink)
    for _ in range(20):
        limit.exceeded(TimedOutError("slow"))
    assert (limit.seconds, sink.time_limit) == (720, MAX_SECONDS)
    assert not limit.kept(200)
    assert sink.time_limit == MAX_SECONDS
    assert limit.kept(20)
    assert (limit.seconds, sink.time_limit) == (240, 80)
    assert limit.kept(0.1)
    assert (limit.seconds, sink.time_limit) == (30, 10)


def test_single_timeout_changes_no_limit() -> None:
    """A smaller write is tried first."""
    sink = Slow(constant)
    limit = TimeLimit(Limits(write_timeout=30), sink)
    limit.exceeded(TimedOutError("slow"))
    assert (limit.seconds, sink.time_limit) == (30, 10)


def test_configured_limit_above_maximum_is_kept() -> None:
    """So is the absence of any limit."""
    for configured in (1000.0, 0.0):
        sink = Slow(constant, time_limit=0)
        limit = TimeLimit(Limits(write_timeout=configured), sink)
        for _ in range(5):
            limit.exceeded(TimedOutError("slow"))
        assert (limit.seconds, sink.time_limit) == (configured, 0)
        assert limit.kept(1)
