"""Background tasks and callbacks: no error passes unseen."""

import ast
import asyncio
import contextlib
import logging
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ccpipe.process.background import (
    background,
    call_blocking,
    end_tasks,
    failing,
    guarded,
    guarded_call,
    uninterrupted,
    wait_for_own_event,
)
from tests.conftest import eventually
from tests.paths import ROOT

AWAITED = {
    "bus/mqtt/session.py": "the session waits for them; its end is an error of who uses it",
    "bus/mqtt/source.py": "its iteration raises the error",
    "bus/nats/connection.py": "the publisher gets the error, or waits for the connection",
    "bus/nats/consumer.py": "its iteration raises the error",
    "bus/nats/replicas.py": "its iteration raises the error",
    "bus/nats/streams/stored.py": "`read_stored` raises the error",
    "cli/recipe/several.py": "a group, after which the first error is raised",
    "cli/step/publish.py": "a thread that the command waits for",
    "cli/tail/follow.py": "`run` and `listen` raise the error",
    "cli/tail/view.py": "a thread whose error the next write raises",
    "cli/top/screen.py": "its error ends the screen",
    "dashboard/server.py": "logs its error and closes the page's connection",
    "live/feed.py": "`run` raises the error",
    "node/agent/agent.py": "pipes, of which one that fails ends the publisher",
    "node/gather/timer.py": "a thread that logs the errors of what it calls",
    "node/sampling/reading.py": "threads whose errors become the collectors' errors",
    "pipeline/pipe.py": "awaited there",
    "process/background.py": "`background` itself, and a thread whose error the caller gets",
    "simulate/publisher.py": "awaited there",
    "sources/file.py": "awaited there",
    "telemetry.py": "a thread that logs the errors of each request",
    "terminal.py": "a thread that only prints, and that `working` waits for",
}
"""Modules that start tasks or threads in another way than `background`, and where errors go."""

STARTING = {"create_task", "ensure_future", "start_new_thread", "Thread"}


def starts(module: Path) -> bool:
    calls = (node for node in ast.walk(ast.parse(module.read_text())) if isinstance(node, ast.Call))
    names = {getattr(call.func, "attr", getattr(call.func, "id", "")) for call in calls}
    return bool(names & STARTING)


def test_tasks_and_threads_are_awaited_or_in_background() -> None:
    """A task that is never awaited is started with `background`, so that its error is logged.

    The list has no module that no longer needs to be in it.
    """
    package = ROOT / "ccpipe"
    found = {str(path.relative_to(package)) for path in package.rglob("*.py") if starts(path)}
    assert found == AWAITED.keys()


CALLBACKS = {
    "error_cb",
    "disconnected_cb",
    "reconnected_cb",
    "closed_cb",
    "on_message",
    "on_publish",
    "on_partitions_revoked",
    "on_partitions_assigned",
}
"""Callbacks of nats-py, paho and aiokafka."""


def unguarded(module: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(module.read_text())):
        match node:
            case ast.AsyncFunctionDef(name=name, decorator_list=decorators):
                value = "".join(map(ast.unparse, decorators))
            case ast.keyword(arg=str(name), value=given):
                value = ast.unparse(given)
            case ast.Assign(targets=[ast.Attribute(attr=name)], value=given):
                value = ast.unparse(given)
            case _:
                continue
        if name in CALLBACKS and not value.startswith("guarded"):
            yield name


def test_callbacks_of_libraries_are_guarded() -> None:
    """Each library treats their errors in its own way, nats-py by never reconnecting."""
    modules = (ROOT / "ccpipe").rglob("*.py")
    assert [(path.name, name) for path in modules for name in unguarded(path)] == []


async def fail(error: Exception) -> None:
    raise error


async def work_until_failure(stop: asyncio.Event, seen: list[str]) -> None:
    with failing(stop.set):
        background(fail(KeyError("broken")), "ccpipe-a")
        await stop.wait()
        seen.append("flushed")


async def test_failed_background_task_stops_enclosing_block(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Its error is logged when it occurs, and raised when the rest has ended."""
    seen: list[str] = []
    with pytest.raises(KeyError, match="broken"):
        await work_until_failure(asyncio.Event(), seen)
    assert seen == ["flushed"]
    assert "ccpipe-a failed: KeyError: 'broken'" in caplog.text
    assert "Traceback" in caplog.text


async def test_failed_background_task_stops_only_innermost_block() -> None:
    """Outer blocks go on, also if another task has started it."""
    outer = asyncio.Event()
    with failing(outer.set):
        with pytest.raises(KeyError):
            await asyncio.create_task(work_until_failure(asyncio.Event(), []))
        assert not outer.is_set()


async def test_failed_background_task_outside_block_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cancelled = background(asyncio.sleep(60), "ccpipe-b")
    cancelled.cancel()
    background(fail(ValueError("broken")), "ccpipe-a")
    await eventually(lambda: "ccpipe-a failed: ValueError: broken" in caplog.text)
    await asyncio.wait({cancelled})
    assert len(caplog.records) == 1


async def test_error_of_block_itself_is_raised() -> None:
    async def work() -> None:
        stop = asyncio.Event()
        with failing(stop.set):
            background(fail(KeyError("second")), "ccpipe-a")
            await stop.wait()
            raise ValueError("first")

    with pytest.raises(ValueError, match="first"):
        await work()


async def test_guarded_callback_logs_error(caplog: pytest.LogCaptureFixture) -> None:
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


async def test_task_that_swallows_cancellation_is_cancelled_again() -> None:
    """nats-py does so at times; ended tasks and None are accepted."""
    swallowed = 0

    async def stubborn() -> None:
        nonlocal swallowed
        while swallowed < 3:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                swallowed += 1

    task = asyncio.create_task(stubborn())
    await asyncio.sleep(0)
    async with asyncio.timeout(60):
        await end_tasks([task, None, asyncio.current_task()])
    assert (task.done(), swallowed) == (True, 3)


async def test_task_closes_resources_despite_repeated_cancellation() -> None:
    """Its cleanup is not interrupted, and its errors are not lost."""
    may_close = asyncio.Event()

    async def close() -> None:
        await may_close.wait()
        raise OSError("closed")

    async def hold() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            await uninterrupted(close())

    task = asyncio.create_task(hold())
    await asyncio.sleep(0)
    ending = asyncio.create_task(end_tasks([task]))
    await asyncio.sleep(0.3)
    assert not ending.done()
    may_close.set()
    await asyncio.wait_for(ending, 60)
    with pytest.raises(OSError, match="closed"):
        task.result()


async def test_cancellation_of_caller_waits_for_tasks() -> None:
    """It is not lost, and no task is left running."""
    may_end = asyncio.Event()

    async def slow() -> None:
        while not may_end.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await may_end.wait()

    task = asyncio.create_task(slow())
    await asyncio.sleep(0)
    ending = asyncio.create_task(end_tasks([task]))
    await asyncio.sleep(0)
    ending.cancel()
    await asyncio.sleep(0.05)
    assert not ending.done()
    may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(ending, 60)
    assert task.done()


async def test_blocking_call_returns_or_raises_like_function() -> None:
    """The loop goes on meanwhile."""
    assert await call_blocking(lambda: 7) == 7
    with pytest.raises(ZeroDivisionError):
        await call_blocking(lambda: 1 // 0)


async def test_cancelled_blocking_call_is_forgotten() -> None:
    """Its late result is discarded."""
    task = asyncio.create_task(call_blocking(lambda: sum(range(10**6))))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await call_blocking(lambda: 7) == 7


def test_process_does_not_wait_for_blocking_call() -> None:
    """A read that never ends does not delay the interpreter's exit."""
    code = """
import asyncio, os
from ccpipe.process.background import call_blocking
async def main():
    reading, writing = os.pipe()
    try:
        async with asyncio.timeout(0.1):
            await call_blocking(lambda: os.read(reading, 1))
    except TimeoutError:
        print("timed out")
asyncio.run(main())
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert (done.stdout, done.stderr) == ("timed out\n", "")


async def test_own_event_is_set_at_deadline() -> None:
    event, clock = asyncio.Event(), asyncio.get_running_loop().time
    deadline = clock() + 0.01
    async with asyncio.timeout(20):
        await wait_for_own_event(event, deadline)
    assert event.is_set()
    assert clock() >= deadline - time.get_clock_info("monotonic").resolution


async def test_own_event_stays_clear_after_earlier_wake() -> None:
    """The timer of a wait that has ended, or was cancelled, does not set the event."""
    event, loop = asyncio.Event(), asyncio.get_running_loop()
    waiting = asyncio.create_task(wait_for_own_event(event, loop.time() + 0.02))
    await asyncio.sleep(0)
    event.set()
    await waiting
    event.clear()
    cancelled = asyncio.create_task(wait_for_own_event(event, loop.time() + 0.02))
    await asyncio.sleep(0)
    cancelled.cancel()
    await asyncio.wait({cancelled})
    end = loop.time() + 0.05
    while loop.time() < end:
        await asyncio.sleep(0.01)
    assert not event.is_set()
