"""Stores that answer before their disk has the records, and crash."""

import asyncio
import math
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.errors import RejectedError, UnavailableError
from ccpipe.formats.lineprotocol import Lines
from ccpipe.message import Message
from ccpipe.pipeline import Limits, UnsyncedSink, run
from tests.pipeline.parts import (
    CommitRecorder,
    EventLog,
    ListDeadLetterSink,
    ListSink,
    ListSource,
    clock,
    made,
    play,
    run_until,
    values,
)

AFTER = 13.0


class Forgetful(ListSink, UnsyncedSink[Lines]):
    """Has on its disk what is older than ``safe_after``; a crash loses the rest."""

    safe_after = AFTER

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.started = -100.0
        self.memory: list[tuple[float, float]] = []
        self.disk: set[float] = set()
        self.questions = 0
        self.is_silent = False

    async def write(self, records: Sequence[Message]) -> None:
        await super().write(records)
        self.memory += [(clock(), value) for value in values(records)]

    async def uptime(self) -> float:
        """Return whole seconds, as VictoriaMetrics does."""
        self.questions += 1
        if self.is_silent:
            raise UnavailableError("no answer")
        return math.floor(clock() - self.started)

    def flush(self) -> None:
        self.disk |= {value for when, value in self.memory if when <= clock() - AFTER + 0.1}

    def crash(self) -> None:
        self.flush()
        self.memory.clear()
        self.started = clock()


LIMITS = Limits(max_wait=0, max_backoff=0.1)


@given(
    crashes=st.lists(st.floats(0.1, 60), max_size=5),
    delays=st.lists(st.floats(0, 6), min_size=1, max_size=20),
    seconds=st.floats(0, 3),
    memory=st.sampled_from([1, 3000, 10**9]),
)
def test_acknowledged_records_survive_any_crash(
    crashes: list[float], delays: list[float], seconds: float, memory: int
) -> None:
    """Whenever the store crashes, and however little memory records may use until they are safe."""
    sink = Forgetful(seconds=seconds)
    source = ListSource([made(n) for n in range(len(delays))], delays=delays)

    def crash() -> None:
        sink.crash()
        assert set(source.acked) <= sink.disk

    async def main() -> None:
        for when in crashes:
            asyncio.get_running_loop().call_later(when, crash)
        await run(source, sink, limits=Limits(max_wait=0, max_memory=memory))
        crash()

    play(main())
    assert source.acked == list(range(len(delays)))


def test_confirmation_does_not_delay_further_writes() -> None:
    """Many wait for their confirmation at once; one query of the uptime confirms all due ones."""
    sink = Forgetful()
    source = ListSource([made(n) for n in range(1000)], delays=[0.01] * 1000)
    play(run(source, sink, limits=LIMITS))
    assert sink.tries[-1] < 11
    assert source.acked == list(range(1000))
    assert sink.questions < 30


def test_restarted_store_gets_unconfirmed_batches_again_in_order() -> None:
    """Each batch once more; batches stay in order, so do the positions of translators."""
    sink = Forgetful()
    event_log: EventLog = []
    source = ListSource([made(n) for n in range(20)], delays=[1.0] * 20)

    async def main() -> None:
        asyncio.get_running_loop().call_later(10.5, sink.crash)
        await run(source, sink, limits=LIMITS, translators=[CommitRecorder(event_log)])

    play(main())
    assert source.acked == list(range(20))
    first: dict[float, None] = dict.fromkeys(values(sink.written))
    assert list(first) == list(range(20))
    assert 20 < len(sink.written) <= 32
    noted = [number for what, number in event_log if what == "noted"]
    assert noted == sorted(noted)
    assert noted[-1] == 20


def test_rejected_records_are_dead_letters_before_confirmation() -> None:
    """They are not delayed with the others."""

    def refuse(records: Sequence[Message]) -> None:
        if bad := [i for i, value in enumerate(values(records)) if value == 2]:
            raise RejectedError("not a two", bad)

    sink, letters = Forgetful(answer=refuse), ListDeadLetterSink()
    source = ListSource([made(1, 2, 3)], delays=[1])
    play(run(source, sink, limits=LIMITS, dead_letter_sink=letters))
    assert source.acked == [0]
    assert values(sink.written) == [1, 3]
    assert letters.numbers == [2]


@pytest.mark.parametrize("upstream", [True, False])
def test_store_unavailable_after_stop_leaves_records_unacknowledged(upstream: bool) -> None:
    """Records without an upstream become dead letters, since they are not redelivered."""
    sink, letters = Forgetful(), ListDeadLetterSink()
    sink.is_silent = True
    source = ListSource([made(1), made(2)], upstream=upstream, stay=True)
    with pytest.raises(UnavailableError, match="no answer"):
        play(run_until(1, source, sink, limits=LIMITS, dead_letter_sink=letters))
    assert source.acked == []
    assert letters.numbers == ([] if upstream else [1, 2])
