"""Where a running ``ccpipe up`` can be reached, for other commands of the same user."""

import asyncio
import os
from pathlib import Path

import pytest

from ccpipe.bus.nats.announcement import RunningServer, running


@pytest.fixture(autouse=True)
def state_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def test_a_running_up_is_found_until_it_withdraws() -> None:
    here = RunningServer("nats://u:p@127.0.0.1:1", os.getpid(), "c", "/x")
    assert running() is None
    here.announce()
    assert running() == here
    here.withdraw()
    assert running() is None


async def test_an_announcement_of_a_dead_process_does_not_count() -> None:
    """An `up` that was killed leaves its announcement behind; nobody must follow it."""
    child = await asyncio.create_subprocess_exec("true")
    await child.wait()
    RunningServer("nats://127.0.0.1:1", child.pid, "c", "/x").announce()
    assert running() is None


@pytest.mark.parametrize("text", ["", "{", "[]", '{"url": 1}', "null"])
def test_a_broken_announcement_does_not_count(text: str) -> None:
    """Whatever stands in that file, commands go on to the next place to look."""
    RunningServer("", 0, "", "").announce()
    path = next(Path(os.environ["XDG_STATE_HOME"]).rglob("up.json"))
    path.write_text(text)
    assert running() is None
