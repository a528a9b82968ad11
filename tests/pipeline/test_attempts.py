"""Writes that are tried until they succeed, each for a bounded time."""

import asyncio

import pytest

from ccpipe.errors import RejectedError, TimedOutError, UnavailableError
from ccpipe.pipeline import Limits
from ccpipe.pipeline.attempts import Attempts, TimeLimit
from ccpipe.telemetry import Telemetry
from tests.pipeline.parts import ListSink, clock, play, virtual


async def hang() -> None:
    await asyncio.Event().wait()


@virtual
async def test_a_hanging_write_times_out() -> None:
    """Its caller is told at once where it can try with less."""
    attempts = Attempts(Limits(timeout=5), Telemetry())
    limit = TimeLimit(attempts.limits, ListSink())
    with pytest.raises(TimedOutError):
        await attempts.retry(hang, "sink", limit=limit)
    assert clock() == 5


@virtual
async def test_a_shutdown_shortens_the_write_that_is_in_hand() -> None:
    """To the grace; one that begins afterwards has a moment."""
    attempts = Attempts(Limits(timeout=500, grace=3), Telemetry())
    asyncio.get_running_loop().call_later(1, attempts.begin_shutdown)
    with pytest.raises(TimedOutError):
        await attempts.retry(hang, "sink")
    assert 4 <= clock() <= 7
    before = clock()
    with pytest.raises(TimedOutError):
        await attempts.retry(hang, "sink")
    assert clock() - before <= 3


def test_the_same_reason_is_logged_once_a_minute_for_hours(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Whoever looks at the log of the last minutes sees that it goes on."""

    async def main() -> None:
        async def fail() -> None:
            if clock() < 7200:
                raise UnavailableError("the store is away")

        await Attempts(Limits(), Telemetry()).retry(fail, "sink")

    play(main())
    assert 80 <= sum("the store is away" in each.message for each in caplog.records) <= 121


@virtual
async def test_other_errors_are_not_tried_again() -> None:
    """Nor is a TimeoutError of the part itself taken for ours."""

    async def fail(error: Exception) -> None:
        raise error

    attempts = Attempts(Limits(), Telemetry())
    for error in (RejectedError("no"), TimeoutError("its own")):
        with pytest.raises(type(error), match=str(error)):
            await attempts.retry(lambda error=error: fail(error), "sink")  # type: ignore[misc]
