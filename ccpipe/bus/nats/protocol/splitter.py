"""Splits the byte stream from a NATS server into frames, across reads, and reply subjects."""

from array import array
from collections.abc import Callable, Sequence

from ccpipe.bus.nats.protocol.frames import (
    Deliveries,
    Frame,
    concatenated_in_python,
    split_in_python,
    stored_in_python,
)
from ccpipe.formats.kernel import load_kernel

KERNEL = load_kernel(__package__, "_frames")

split: Callable[[bytearray, int, int], tuple[list[Frame], int, int]]
split = split_in_python if KERNEL is None else KERNEL.split

stored: "Callable[[bytes], tuple[array[int], array[int]] | None]"
stored = stored_in_python if KERNEL is None else KERNEL.stored

if KERNEL is not None:
    Deliveries.register(KERNEL.Deliveries)


def concatenated(parts: Sequence[Deliveries]) -> Deliveries:
    """Return the messages of all parts."""
    if len(parts) == 1:
        return parts[0]
    if KERNEL is None or any(type(part) is Deliveries for part in parts):
        return concatenated_in_python(parts)
    whole: Deliveries = KERNEL.concatenated(parts)
    return whole


SMALL, LARGE = 2**16, 2**20
"""Read size: small at first, larger while more data are waiting."""


class FrameSplitter:
    """Splits bytes into frames, across reads.

    The caller writes into ``free()`` and calls ``filled()``; or passes bytes to ``feed()``.
    """

    def __init__(self) -> None:
        self._size = SMALL
        self._store = bytearray()
        self._start = self._end = 0
        self._needed = 1  # bytes of the current frame, as far as known

    def free(self) -> memoryview:
        """Return the buffer for the next bytes, large enough for the whole current frame."""
        held = self._end - self._start
        lacking = max(self._needed - held, SMALL // 2)
        if not held or len(self._store) - self._end < lacking:
            self._move(max(self._size, held + lacking))
        return memoryview(self._store)[self._end :]

    def filled(self, count: int) -> list[Frame]:
        """Return the frames completed by `count` more bytes; raises BrokenFrame."""
        self._end += count
        if self._end == len(self._store):  # more data was waiting than fits
            self._size = min(2 * self._size, LARGE)
        if self._end - self._start < self._needed:
            return []
        frames, self._start, self._needed = split(self._store, self._start, self._end)
        return frames

    def feed(self, data: bytes) -> list[Frame]:
        """Return the frames completed by `data`; raises BrokenFrame."""
        frames: list[Frame] = []
        while data:
            room = self.free()
            count = min(len(room), len(data))
            room[:count] = data[:count]
            frames += self.filled(count)
            data = data[count:]
        return frames

    def _move(self, size: int) -> None:
        """Move the incomplete frame to the start of a buffer of at least `size`."""
        held = memoryview(self._store)[self._start : self._end]
        # Never resized: a view of the old one may still exist.
        store = self._store if len(self._store) == size else bytearray(size)
        store[: len(held)] = bytes(held)
        self._store, self._start, self._end = store, 0, len(held)
