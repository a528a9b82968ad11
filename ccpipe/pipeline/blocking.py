"""Calls that may block without end, such as reading a terminal or writing to a stopped reader."""

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


async def call_blocking(function: Callable[[], T]) -> T:
    """Call a function in a thread of its own, for which the end of the process does not wait.

    ``asyncio.to_thread`` would: its threads are joined at exit, so that one that blocks forever
    keeps the process forever. Where the caller is cancelled, the call goes on and its result is
    dropped. The function must not use a buffered standard stream: a daemon thread that holds its
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
        except BaseException as caught:  # noqa: BLE001 - it is raised where the call was made
            error = caught
        with contextlib.suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(report, value, error)

    threading.Thread(target=work, name="ccpipe-blocking", daemon=True).start()
    return await result
