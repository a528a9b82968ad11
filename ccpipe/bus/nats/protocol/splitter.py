"""The stream of bytes from a NATS server, cut into frames whatever pieces it comes in."""

from collections.abc import Callable

from ccpipe.bus.nats.protocol.frames import Frame, split_in_python
from ccpipe.formats.kernel import load_kernel

KERNEL = load_kernel(__package__, "_frames")

split: Callable[[bytearray, int, int], tuple[list[Frame], int, int]]
split = split_in_python if KERNEL is None else KERNEL.split

SMALL, LARGE = 2**16, 2**20
"""Bytes that are read at once: few at first, more where more waits."""


class FrameSplitter:
    """Bytes to frames, whatever pieces they come in.

    The caller writes into ``free()`` and calls ``filled()``; or hands over bytes to ``feed()``.
    """

    def __init__(self) -> None:
        """Start empty."""
        self._size = SMALL
        self._store = bytearray()
        self._start = self._end = 0
        self._needed = 1  # bytes of the frame in hand, as far as they are known

    def free(self) -> memoryview:
        """Return where the next bytes go; there is room for the whole frame in hand."""
        held = self._end - self._start
        lacking = max(self._needed - held, SMALL // 2)
        if not held or len(self._store) - self._end < lacking:
            self._move(max(self._size, held + lacking))
        return memoryview(self._store)[self._end :]

    def filled(self, count: int) -> list[Frame]:
        """Return the frames that `count` more bytes complete; raises BrokenFrame."""
        self._end += count
        if self._end == len(self._store):  # more waited than there was room for
            self._size = min(2 * self._size, LARGE)
        if self._end - self._start < self._needed:
            return []
        frames, self._start, self._needed = split(self._store, self._start, self._end)
        return frames

    def feed(self, data: bytes) -> list[Frame]:
        """Return the frames that `data` completes; raises BrokenFrame."""
        frames: list[Frame] = []
        while data:
            room = self.free()
            count = min(len(room), len(data))
            room[:count] = data[:count]
            frames += self.filled(count)
            data = data[count:]
        return frames

    def _move(self, size: int) -> None:
        """Move what is unfinished to the beginning of a store of at least `size`."""
        held = memoryview(self._store)[self._start : self._end]
        # Never resized: somebody may still look at the old one.
        store = self._store if len(self._store) == size else bytearray(size)
        store[: len(held)] = bytes(held)
        self._store, self._start, self._end = store, 0, len(held)
