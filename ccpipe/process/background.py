"""Background tasks and callbacks: an error in one of them never passes unseen.

A task that is awaited needs none of this. One that runs concurrently is started with `background`:
its error is logged and ends the innermost `failing` around its start, as a rule ``pipeline.run``
or the command itself. A callback that a library calls is wrapped in `guarded`: libraries react to
an error there in many ways, nats-py by giving up.

Also here: ways to wait for tasks to end, for a call that may block forever, and for an event.
"""

import asyncio
import contextlib
import functools
import logging
import math
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator
from contextvars import ContextVar
from typing import Any, ParamSpec, TypeVar

log = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

_running: set[asyncio.Task[Any]] = set()  # the event loop itself does not keep tasks alive

_fail: ContextVar[Callable[[BaseException], None] | None] = ContextVar("fail", default=None)
"""Ends what is running, with an error."""


def background(work: Coroutine[Any, Any, T], name: str) -> asyncio.Task[T]:
    """Start a task that is never awaited; its error is logged and ends the `failing` around it."""
    task = asyncio.create_task(work, name=name)
    _running.add(task)
    task.add_done_callback(functools.partial(_check, _fail.get()))
    return task


def _check(fail: Callable[[BaseException], None] | None, task: asyncio.Task[Any]) -> None:
    _running.discard(task)
    if task.cancelled() or (error := task.exception()) is None:
        return
    name = task.get_name()
    log.error("%s failed: %s: %s", name, type(error).__name__, error, exc_info=error)
    if fail is not None:
        fail(error)


@contextlib.contextmanager
def failing(stop: Callable[[], object]) -> Iterator[None]:
    """Call `stop` when a background task started within fails; its error is raised at the end."""
    errors: list[BaseException] = []

    def fail(error: BaseException) -> None:
        errors.append(error)
        stop()

    token = _fail.set(fail)
    try:
        yield
    finally:
        _fail.reset(token)
    if errors:
        raise errors[0]


def guarded(callback: Callable[P, Awaitable[None]]) -> Callable[P, Coroutine[Any, Any, None]]:
    """Return a callback whose errors are logged instead of raised."""

    @functools.wraps(callback)
    async def call(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            await callback(*args, **kwargs)
        except Exception:
            log.exception("an unexpected error in %s", callback.__qualname__)

    return call


def guarded_call(callback: Callable[P, None]) -> Callable[P, None]:
    """Return a plain function whose errors are logged instead of raised."""

    @functools.wraps(callback)
    def call(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            callback(*args, **kwargs)
        except Exception:
            log.exception("an unexpected error in %s", callback.__qualname__)

    return call


async def end_tasks(tasks: Iterable["asyncio.Task[Any] | None"]) -> None:
    """Cancel tasks until they have ended; a cancellation of the caller waits for them, too.

    Libraries sometimes swallow a cancellation: where Python 3.11's ``asyncio.wait_for`` does, if
    what it waits for, such as a refused connection, ends at the same time.
    """
    cancelled = None
    left = {task for task in tasks if task is not None and task is not asyncio.current_task()}
    while left := {task for task in left if not task.done()}:
        for task in left:
            task.cancel()
        try:
            await asyncio.wait(left, timeout=0.1)
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled


async def uninterrupted(work: Coroutine[Any, Any, None]) -> None:
    """Run `work`, which takes a limited time, to its end; a cancellation of the caller waits.

    So `end_tasks`, which cancels repeatedly, does not interrupt a task that closes its resources.
    """
    task = asyncio.create_task(work)
    cancelled = None
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError as error:
            cancelled = error
    task.result()
    if cancelled is not None:
        raise cancelled


async def call_blocking(function: Callable[[], T]) -> T:
    """Call a function in a separate thread that does not delay the exit of the process.

    The threads of ``asyncio.to_thread`` are joined at exit, so that one that blocks forever would
    keep the process alive. If the caller is cancelled, the call continues and its result is
    discarded. The function must not use a buffered standard stream: a daemon thread that has its
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
            result.set_result(value)  # type: ignore[arg-type] # without an error

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


async def wait_for_own_event(event: asyncio.Event, deadline: float = math.inf) -> None:
    """Wait until an event is set, which a timer does at the deadline, by the loop's clock.

    It costs half as much as ``wait_for_event``, which leaves an event of others unchanged.
    """
    if deadline == math.inf:
        await event.wait()
        return
    timer = asyncio.get_running_loop().call_at(deadline, event.set)
    try:
        await event.wait()
    finally:
        timer.cancel()


async def wait_for_event(event: asyncio.Event, seconds: float) -> None:
    """Wait until an event is set, or for a time at most: an interruptible sleep.

    ``asyncio.wait_for`` may swallow a cancellation on Python 3.11.
    """
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
