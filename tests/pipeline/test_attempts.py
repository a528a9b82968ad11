"""Writes that are tried until they succeed, each for a bounded time."""

import pytest

from ccpipe.errors import RejectedError, UnavailableError
from ccpipe.pipeline import Limits
from ccpipe.pipeline.delivery import Attempts
from ccpipe.telemetry import Telemetry
from tests.pipeline.parts import clock, play, virtual


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
