"""Waiting: for calls that may block forever, and for events."""

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


async def call_blocking(function: Callable[[], T]) -> T:
    """Call a function in a separate thread that does not delay the exit of the process.

    The threads of ``asyncio.to_thread`` are joined at exit, so that one that blocks forever would
    keep the process alive. If the caller is cancelled, the call continues and its result is
    discarded. The function must not use a buffered standard stream: a daemon thread that holds its
    lock aborts the interpreter at exit.
    """
    loop = asyncio.get_running_loop()
    result: asyncio.Future[T] = loop.create_future()

    def report(value: T | None, error: BaseException | None) -> None:
        if result.done():
            return
        if error is not None:
            result.set_exception(error)
        else:
            result.set_result(value)  # type: ignore[arg-type] # there is no error

    def work() -> None:
        value, error = None, None
        try:
            value = function()
        except BaseException as caught:  # noqa: BLE001 - re-raised in the caller
            error = caught
        with contextlib.suppress(RuntimeError):  # the event loop has ended
            loop.call_soon_threadsafe(report, value, error)

    threading.Thread(target=work, name="ccpipe-blocking", daemon=True).start()
    return await result


async def wait_for_event(event: asyncio.Event, seconds: float) -> None:
    """Wait until an event is set, or for a time at most: an interruptible sleep.

    ``asyncio.wait_for`` may swallow a cancellation on Python 3.11.
    """
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
