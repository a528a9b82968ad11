"""The content of a store as a source: window by window, each recorded when it is written."""

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
def test_row_becomes_original_message(values: tuple[object, ...], expected: object) -> None:
    """The exact value takes precedence over the double; an empty text and false are values too."""
    message = message_of(("m", "value", *NODE, {"x": "y"}, 7, *values))
    assert message.value == expected
    assert type(message.value) is type(expected)
    assert list(message.tags.items()) == [
        ("cluster", "fox"), ("hostname", "n1"), ("type", "node"), ("x", "y"),
    ]  # fmt: skip
    as_text = message_of(("m", "value", *NODE, '{"x":"y"}', 7, *values))
    assert as_text == message


class Store:
    """A message in the middle of each window; records the requested ranges."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, int]] = []

    async def __call__(self, begin: int, end: int) -> AsyncIterator[Sequence[Message]]:
        self.asked.append((begin, end))
        yield [Message("m", {}, 1.0, begin)]


def source(store: Store, windows: float, checkpoint: Path | None = None) -> BackfillSource:
    selection = BackfillSelection(0, int(windows * WINDOW))
    return BackfillSource(store, selection, name="x", checkpoint=checkpoint)


async def test_source_reads_windows_up_to_end() -> None:
    store = Store()
    times = [m.time async for batch in source(store, 2.5).batches() for m in batch.records]
    assert times == [0, WINDOW, 2 * WINDOW]
    assert store.asked == [(0, WINDOW), (WINDOW, 2 * WINDOW), (2 * WINDOW, int(2.5 * WINDOW))]


async def test_source_continues_after_last_written_window(tmp_path: Path) -> None:
    """A window is recorded when all of its batches are acknowledged, not before."""
    checkpoint, store = tmp_path / "x.json", Store()
    batches = [batch async for batch in source(store, 3, checkpoint).batches()]
    for batch in batches[:3]:  # a window, its note, and half of the second
        assert batch.ack
        await batch.ack()
    again = Store()
    assert [b async for b in source(again, 3, checkpoint).batches()]
    assert [begin for begin, _ in again.asked] == [WINDOW, 2 * WINDOW]


async def test_source_stops_after_current_batch() -> None:
    """The next process reads the remaining records."""
    store = Store()
    made = source(store, 5)
    async for _ in made.batches():
        made.stop()
    assert len(store.asked) <= 2


SELECTION = BackfillSelection(10, 90, frozenset({"n1"}))


def test_checkpoint_resumes_at_recorded_time(tmp_path: Path) -> None:
    """Only its time counts; the end may have advanced where a bridge writes to the store."""
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
def test_checkpoint_of_other_backfill_is_rejected(
    tmp_path: Path, name: str, selection: BackfillSelection
) -> None:
    """Resuming from it would omit records that were never written."""
    path = tmp_path / "x.json"
    BackfillCheckpoint(path, "a to b", SELECTION, 10).write()
    with pytest.raises(ConfigError, match="another backfill"):
        BackfillCheckpoint(path, name, selection, 10)


@pytest.mark.parametrize("content", [b"", b"{", b"{}", b'{"done":"x"}', b"\xff"])
def test_invalid_checkpoint_is_named(tmp_path: Path, content: bytes) -> None:
    """Starting over would silently write everything twice."""
    path = tmp_path / "x.json"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"x\.json"):
        BackfillCheckpoint(path, "a to b", SELECTION, 10)


def test_checkpoint_without_path_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    BackfillCheckpoint(None, "a to b", SELECTION, 10).write()
    assert list(tmp_path.iterdir()) == []


def test_missing_checkpoint_directory_is_named(tmp_path: Path) -> None:
    """It is a temporary error: nothing is lost, but records may be written again."""
    checkpoint = BackfillCheckpoint(tmp_path / "gone" / "x.json", "a to b", SELECTION, 10)
    with pytest.raises(UnavailableError, match=r"x\.json"):
        checkpoint.write()
