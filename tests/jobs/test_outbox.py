"""Messages are returned again until they are committed."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.jobs import Outbox
from ccpipe.jobs.lifecycle import RECALL_DELAY
from ccpipe.message import Message
from ccpipe.pipeline.state import StateStore


def make(number: int) -> Message:
    return Message("job", {"function": "f"}, str(number), number, "event")


def opened(path: Path | str) -> Outbox:
    state = StateStore(str(path))
    outbox = Outbox(state, clock=lambda: 100)
    state.open()
    return outbox


def test_outbox_returns_uncommitted_messages_with_first_feed(tmp_path: Path) -> None:
    """Byte for byte and in its order, and only once in each process; feeds count from 1 again."""
    outbox = opened(tmp_path / "state")
    for number in (1, 2, 3):
        assert outbox.put([(make(number), 0)]) == [make(number)]
    outbox.commit(1)
    del outbox
    for _ in range(2):
        outbox = opened(tmp_path / "state")
        assert outbox.put([]) == [make(2), make(3)]
        assert outbox.feed == 1
        assert outbox.put([]) == []
        del outbox
    outbox = opened(tmp_path / "state")
    outbox.put([(make(4), 0)])
    outbox.commit(1)
    del outbox
    assert opened(tmp_path / "state").put([]) == []


def test_outbox_delays_message_until_its_time() -> None:
    """Its feed counts as held until then, and so do those after it."""
    outbox, now = opened(""), 100
    outbox.clock = lambda: now
    assert outbox.put([(make(1), 150), (make(2), 0)]) == [make(2)]
    assert outbox.oldest_held == 1
    assert outbox.put([(make(3), 160)]) == []
    assert outbox.oldest_held == 1
    now = 155
    assert outbox.put([]) == [make(1)]
    assert outbox.oldest_held == 2
    assert outbox.flush() == [make(3)]
    assert not outbox.oldest_held
    assert outbox.flush() == []


def test_outbox_delays_restored_message_again(tmp_path: Path) -> None:
    """Its start is returned again with the first feed, and must be sent well before."""
    outbox = opened(tmp_path / "state")
    assert outbox.put([(make(1), 0), (make(2), 150)]) == [make(1)]
    del outbox
    outbox, now = opened(tmp_path / "state"), 160
    outbox.clock = lambda: now
    assert outbox.put([]) == [make(1)]
    assert outbox.oldest_held == 1
    now += RECALL_DELAY
    assert outbox.put([]) == [make(2)]
    outbox.commit(1)
    del outbox
    assert opened(tmp_path / "state").put([]) == []


def test_outbox_without_file_restores_nothing() -> None:
    """And nothing is kept."""
    outbox = opened("")
    outbox.put([(make(1), 0)])
    outbox.commit(1)
    assert len(outbox._made) == 0


@given(st.lists(st.sampled_from(["put", "commit", "die"]), max_size=25))
def test_outbox_loses_no_message(
    tmp_path_factory: pytest.TempPathFactory, steps: list[str]
) -> None:
    """In any sequence, every message is returned, and not again after its commit."""
    path = tmp_path_factory.mktemp("outbox") / "state"
    outbox, count = opened(path), 0
    seen: set[int] = set()
    committed: set[int] = set()

    def put(number: int) -> None:
        sent = {int(str(message.value)) for message in outbox.put([(make(number), 0)])}
        assert not sent & committed
        seen.update(sent)

    for step in steps:
        if step == "put":
            count += 1
            put(count)
        elif step == "commit" and outbox.feed:
            outbox.commit(outbox.feed)
            committed |= seen
        elif step == "die":
            del outbox
            outbox = opened(path)
    put(0)
    assert seen == set(range(count + 1))
