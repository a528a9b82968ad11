"""Non-blocking output to a reader that may be slow or stopped."""

import asyncio
import os
import threading
from collections import deque

from ccpipe.errors import OutputError

MAX_BYTES = 64 * 2**20
"""Maximum bytes buffered for a slow reader; further data are dropped and counted."""
LAST_SECONDS = 1.0
"""How long a command waits for its reader after a stop."""


class Stdout:
    """Writes in a thread that does not delay the exit of the process."""

    def __init__(self, descriptor: int) -> None:
        self.dropped = 0
        self._descriptor = descriptor
        self._held: deque[bytes] = deque()
        self._size = 0
        self._error: BrokenPipeError | OutputError | None = None
        self._changed = threading.Condition()
        threading.Thread(target=self._work, name="ccpipe-stdout", daemon=True).start()

    def write(self, data: bytes) -> None:
        """Queue data for writing; raises the BrokenPipeError or OutputError of an earlier write."""
        with self._changed:
            if self._error is not None:
                raise self._error
            if self._size + len(data) > MAX_BYTES and self._held:
                self.dropped += data.count(b"\n")
                return
            self._held.append(data)
            self._size += len(data)
            self._changed.notify()

    async def drain(self, stop: asyncio.Event) -> None:
        """Wait until everything is written; once `stop` is set, only briefly."""
        loop = asyncio.get_running_loop()
        deadline = None
        while self._size and self._error is None:
            if stop.is_set():
                deadline = deadline or loop.time() + LAST_SECONDS
                if loop.time() >= deadline:
                    return
            await asyncio.sleep(0.01)
        if self._error is not None:
            raise self._error

    def _work(self) -> None:
        while True:
            with self._changed:
                while not self._held:
                    self._changed.wait()
                data = self._held[0]
            try:
                rest = memoryview(data)
                while rest:
                    rest = rest[os.write(self._descriptor, rest) :]
            except BrokenPipeError as error:
                self._error = error
                return
            except OSError as error:
                self._error = OutputError(f"standard output: {error.strerror}")
                return
            with self._changed:
                self._held.popleft()
                self._size -= len(data)
