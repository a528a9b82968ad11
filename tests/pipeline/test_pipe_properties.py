"""``run()`` under any mixture of what may go wrong."""

import asyncio
import contextlib
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from ccpipe.errors import CcpipeError, DataError, RejectedError, UnavailableError
from ccpipe.message import Message
from ccpipe.pipeline import Limits, run
from ccpipe.telemetry import Telemetry
from tests.pipeline.parts import (
    Failing,
    ListDeadLetterSink,
    ListSink,
    ListSource,
    made,
    play,
    values,
)

AWAY = UnavailableError("away")


class Moody(ListSink):
    """Answers each try as the list says: takes a while, is away, refuses odd numbers."""

    def __init__(self, moods: Sequence[str], ever_after: str) -> None:
        super().__init__()
        self.moods = iter(moods)
        self.ever_after = ever_after

    async def write(self, records: Sequence[Message]) -> None:
        mood = next(self.moods, self.ever_after)
        await asyncio.sleep({"slow": 1, "away slowly": 1}.get(mood, 0))
        if mood.startswith("away"):
            raise AWAY
        if mood == "refuses" and any(value % 2 for value in values(records)):
            raise RejectedError("odd")
        self.written.extend(records)


moods = st.sampled_from(["well", "slow", "away", "away slowly", "refuses"])


@given(
    sizes=st.lists(st.integers(0, 3), max_size=12),
    delays=st.lists(st.sampled_from([0, 0, 0.5, 1]), max_size=12),
    moods=st.lists(moods, max_size=20),
    # A sink that never comes back needs a stop to end the pipe, and dead letters that can be kept.
    ever_after=st.sampled_from([("well", 0), ("well", 3), ("away", 0)]),
    seconds=st.sampled_from([0, 0.5, 1, 2, 5]),
    memory=st.sampled_from([1, 2048, 2**20]),
    lines=st.integers(1, 6),
    age=st.sampled_from([0, 0.5, 1]),
    upstream=st.booleans(),
    fails=st.booleans(),
)
def test_nothing_is_ever_lost(
    sizes: list[int],
    delays: list[float],
    moods: list[str],
    ever_after: tuple[str, int],
    seconds: float,
    memory: int,
    lines: int,
    age: float,
    upstream: bool,
    fails: bool,
) -> None:
    """Whatever fails and whenever it stops: each record is written, a dead letter or comes again.

    It is never both written and a dead letter, order is kept, and nothing is acknowledged that is
    not safe.
    """
    payloads: list[Sequence[Message]] = [
        made(*range(10 * n, 10 * n + k)) for n, k in enumerate(sizes)
    ]
    error = DataError("broken") if fails else None
    source = ListSource(payloads, upstream=upstream, delays=delays, fails=error)
    mood, dead = ever_after
    kept = ListDeadLetterSink(Failing(AWAY, 0 if {"away", "away slowly"} & set(moods) else dead))
    sink = Moody(moods, mood)
    limits = Limits(lines=lines, memory=memory, age=age, grace=2, backoff=0.5)
    telemetry = Telemetry()

    async def main() -> None:
        stop = asyncio.Event()
        asyncio.get_running_loop().call_later(seconds, stop.set)
        with contextlib.suppress(CcpipeError):
            await run(
                source, sink, dead_letter_sink=kept, limits=limits, telemetry=telemetry, stop=stop
            )

    play(main())
    written, to_dead_letter = values(sink.written), kept.numbers
    assert written == sorted(set(written))
    assert len(to_dead_letter) == len(set(to_dead_letter))
    assert not set(written) & set(to_dead_letter)
    safe = set(written) | set(to_dead_letter)
    for number, records in enumerate(payloads[: source.handed]):
        comes_again = upstream and number not in source.acked
        assert comes_again or safe.issuperset(values(records))
    assert source.acked == sorted(set(source.acked))
    assert telemetry.registry.get_sample_value("ccpipe_queued_bytes") == 0 or upstream
