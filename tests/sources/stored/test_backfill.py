"""What a store has as a source: window by window, each noted when it is written."""

from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from ccpipe.errors import ConfigError, UnavailableError
from ccpipe.message import Message, Uint
from ccpipe.sources.stored.backfill import (
    WINDOW,
    BackfillCheckpoint,
    BackfillSelection,
    BackfillSource,
    message_of,
)

NODE = ("fox", "n1", "node", None, None, None)
NONE = (None, None, None, None, None)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ((1.5, None, None, None, None), 1.5),
        ((float(2**63), 2**63 - 1, None, None, None), 2**63 - 1),
        ((1.8e19, None, 2**64 - 1, None, None), Uint(2**64 - 1)),
        ((1.0, None, None, True, None), True),
        ((0.0, None, None, False, None), False),
        ((None, None, None, None, ""), ""),
    ],
)
def test_a_row_is_the_message_that_it_was(values: tuple[object, ...], expected: object) -> None:
    """The exact value comes before the double; an empty text and false are values too."""
    message = message_of(("m", "value", *NODE, {"x": "y"}, 7, *values))
    assert message.value == expected
    assert type(message.value) is type(expected)
    assert list(message.tags.items()) == [
        ("cluster", "fox"), ("hostname", "n1"), ("type", "node"), ("x", "y"),
    ]  # fmt: skip
    as_text = message_of(("m", "value", *NODE, '{"x":"y"}', 7, *values))
    assert as_text == message


class Store:
    """A message in the middle of each window; notes what is asked for."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, int]] = []

    async def __call__(self, begin: int, end: int) -> AsyncIterator[Sequence[Message]]:
        self.asked.append((begin, end))
        yield [Message("m", {}, 1.0, begin)]


def source(store: Store, windows: float, checkpoint: Path | None = None) -> BackfillSource:
    selection = BackfillSelection(0, int(windows * WINDOW))
    return BackfillSource(store, selection, name="x", checkpoint=checkpoint)


async def test_windows_follow_one_another_up_to_the_end() -> None:
    store = Store()
    times = [m.time async for batch in source(store, 2.5).batches() for m in batch.records]
    assert times == [0, WINDOW, 2 * WINDOW]
    assert store.asked == [(0, WINDOW), (WINDOW, 2 * WINDOW), (2 * WINDOW, int(2.5 * WINDOW))]


async def test_it_goes_on_after_the_last_window_that_was_written(tmp_path: Path) -> None:
    """A window is noted when all of its batches are safe, not before."""
    checkpoint, store = tmp_path / "x.json", Store()
    batches = [batch async for batch in source(store, 3, checkpoint).batches()]
    for batch in batches[:3]:  # a window, its note, and half of the second
        assert batch.ack
        await batch.ack()
    again = Store()
    assert [b async for b in source(again, 3, checkpoint).batches()]
    assert [begin for begin, _ in again.asked] == [WINDOW, 2 * WINDOW]


async def test_it_stops_after_the_batch_in_hand() -> None:
    """What was not handed over is read by the next one."""
    store = Store()
    made = source(store, 5)
    async for _ in made.batches():
        made.stop()
    assert len(store.asked) <= 2


SELECTION = BackfillSelection(10, 90, frozenset({"n1"}))


def test_it_is_taken_up_where_it_was(tmp_path: Path) -> None:
    """Its time is what counts; the end may have moved on where a bridge writes to the store."""
    path = tmp_path / "x.json"
    first = BackfillCheckpoint(path, "a to b", SELECTION, 10)
    first.state.done = 50
    first.write()
    later = BackfillCheckpoint(path, "a to b", BackfillSelection(10, 200, SELECTION.nodes), 10)
    assert (later.state.done, later.state.end) == (50, 200)


@pytest.mark.parametrize(
    ("name", "selection"),
    [
        ("a to c", SELECTION),
        ("a to b", BackfillSelection(10, 90)),
        ("a to b", BackfillSelection(10, 90, frozenset("x"))),
    ],
)
def test_that_of_another_backfill_is_refused(
    tmp_path: Path, name: str, selection: BackfillSelection
) -> None:
    """Taken up, it would leave out what was never written."""
    path = tmp_path / "x.json"
    BackfillCheckpoint(path, "a to b", SELECTION, 10).write()
    with pytest.raises(ConfigError, match="another backfill"):
        BackfillCheckpoint(path, name, selection, 10)


@pytest.mark.parametrize("content", [b"", b"{", b"{}", b'{"done":"x"}', b"\xff"])
def test_a_file_that_is_none_is_named(tmp_path: Path, content: bytes) -> None:
    """To start over would write everything twice, silently."""
    path = tmp_path / "x.json"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"x\.json"):
        BackfillCheckpoint(path, "a to b", SELECTION, 10)


def test_without_a_path_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    BackfillCheckpoint(None, "a to b", SELECTION, 10).write()
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_is_gone_is_named(tmp_path: Path) -> None:
    """As what may pass: what was written is not lost, but may be written again."""
    checkpoint = BackfillCheckpoint(tmp_path / "gone" / "x.json", "a to b", SELECTION, 10)
    with pytest.raises(UnavailableError, match=r"x\.json"):
        checkpoint.write()
