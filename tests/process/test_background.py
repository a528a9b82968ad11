"""Background tasks and callbacks: none fails unseen."""

import asyncio
import logging

import pytest

from ccpipe.process.background import background, failing, guarded, guarded_call
from tests.conftest import eventually


async def fail(error: Exception) -> None:
    """Fail at once."""
    raise error


async def work_until_failure(stop: asyncio.Event, seen: list[str]) -> None:
    """Start a task that fails, and work until it has told so."""
    with failing(stop.set):
        background(fail(KeyError("broken")), "ccpipe-a")
        await stop.wait()
        seen.append("flushed")


async def test_background_task_that_fails_stops_what_it_works_for(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Its error is logged when it occurs, and raised when the rest has ended."""
    seen: list[str] = []
    with pytest.raises(KeyError, match="broken"):
        await work_until_failure(asyncio.Event(), seen)
    assert seen == ["flushed"]
    assert "ccpipe-a failed: KeyError: 'broken'" in caplog.text
    assert "Traceback" in caplog.text


async def test_background_task_stops_only_the_innermost() -> None:
    """What it does not work for goes on, also where another task has started it."""
    outer = asyncio.Event()
    with failing(outer.set):
        with pytest.raises(KeyError):
            await asyncio.create_task(work_until_failure(asyncio.Event(), []))
        assert not outer.is_set()


async def test_background_task_without_anything_around_it_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """So it is in a program of one's own; cancelling is no failure."""
    cancelled = background(asyncio.sleep(60), "ccpipe-b")
    cancelled.cancel()
    background(fail(ValueError("broken")), "ccpipe-a")
    await eventually(lambda: "ccpipe-a failed: ValueError: broken" in caplog.text)
    await asyncio.wait({cancelled})
    assert len(caplog.records) == 1


async def test_error_of_the_block_itself_is_the_one_that_is_raised() -> None:
    """A background error beside it does not hide it."""

    async def work() -> None:
        stop = asyncio.Event()
        with failing(stop.set):
            background(fail(KeyError("second")), "ccpipe-a")
            await stop.wait()
            raise ValueError("first")

    with pytest.raises(ValueError, match="first"):
        await work()


async def test_guarded_callbacks_log_their_errors(caplog: pytest.LogCaptureFixture) -> None:
    """The library that calls them does not see any."""
    calls: list[int] = []

    def note(number: int) -> None:
        calls.append(number)
        if number > 1:
            raise KeyError(number)

    async def note_later(number: int) -> None:
        note(number)

    caplog.set_level(logging.ERROR)
    for number in (1, 2):
        guarded_call(note)(number)
        await guarded(note_later)(number)
    assert calls == [1, 1, 2, 2]
    assert [record.getMessage().split(".")[-1] for record in caplog.records] == [
        "note",
        "note_later",
    ]
