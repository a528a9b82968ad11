"""The processes of the node, for repeated walks.

Files stay open between walks, and unchanged lines are not parsed again: that costs about half as
much as ``ProcessTable``. An open file is tied to its process: once that has ended it cannot be
read, even if the pid is reused.
"""

import os
import resource
from typing import Self

from ccpipe.node.linux.process_table import Process, parse_process, parse_transferred, read

_WHOLE = 4096  # maximum size of either file, in bytes
_SPARE = 256  # file descriptors left for others
_CLOSED = -1


class OpenProcess:
    """One process: each walk returns the same object as long as it runs."""

    __slots__ = ("io_file", "io_text", "process", "stat_file", "stat_text", "transferred")

    def __init__(self, process: Process, text: bytes, stat: int) -> None:
        self.process = process
        """As of the last walk; the same object while nothing in it changed.

        The other attributes are the walker's cache: files, their content, and what was parsed from
        it.
        """
        self.stat_text, self.stat_file = text, stat
        self.io_file, self.io_text = _CLOSED, b""
        self.transferred: tuple[int, int] | None = None

    def __del__(self) -> None:
        for file in (self.stat_file, self.io_file):
            if file != _CLOSED:
                os.close(file)


class OpenProcesses:
    """Walks over the processes of the node. Not to be used by several threads at a time.

    `limit` files may stay open; otherwise as many as leave the process some to work with.
    """

    def __init__(self, *, root: str = "/", limit: int | None = None) -> None:
        self._path = os.path.join(root, "proc")  # noqa: PTH118 - hundreds of paths cost too much
        soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        self._limit = max(0, soft - _SPARE) if limit is None else limit
        self._open = 0
        self._known: dict[str, OpenProcess] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._known = {}
        self._open = 0

    def walk(self) -> dict[int, OpenProcess]:
        """Return the processes by their numbers; what is no line of a process is left out."""
        known, now = self._known, {}
        found: dict[int, OpenProcess] = {}
        pread = os.pread
        for name in os.listdir(self._path):  # noqa: PTH208 - as above
            one = known.get(name)
            text = b""
            if one is not None and one.stat_file != _CLOSED:
                try:
                    text = pread(one.stat_file, _WHOLE, 0)
                except OSError:
                    one = None  # it ended, and its pid may be reused
            elif not name.isdecimal():
                continue
            if one is None or text != one.stat_text:
                one = self._renew(name, one, text)
                if one is None:
                    continue
            now[name] = one
            found[one.process.pid] = one
        self._known = now
        self._open = sum(
            (one.stat_file != _CLOSED) + (one.io_file != _CLOSED) for one in now.values()
        )
        return found

    def _renew(self, name: str, one: OpenProcess | None, text: bytes) -> OpenProcess | None:
        """Return a process that is new, or whose line changed; None if it has ended."""
        path = f"{self._path}/{name}/stat"
        stat = _CLOSED
        if one is None and self._open < self._limit:
            try:
                stat = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
                self._open += 1
                text = os.pread(stat, _WHOLE, 0)
            except OSError:
                text = b""
        else:
            text = text or read(path)
            if one is not None and text == one.stat_text:
                return one
        try:
            process = parse_process(text)
        except (ValueError, IndexError):
            if stat != _CLOSED:
                os.close(stat)
            return None
        if one is None or process.start != one.process.start:
            return OpenProcess(process, text, stat)
        one.process, one.stat_text = process, text
        return one

    def transferred(self, one: OpenProcess) -> tuple[int, int] | None:
        """Return the bytes read and written by a process's system calls; None if unknown."""
        text = b""
        try:
            if one.io_file == _CLOSED and self._open < self._limit:
                path = f"{self._path}/{one.process.pid}/io"
                one.io_file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
                self._open += 1
            if one.io_file == _CLOSED:
                text = read(f"{self._path}/{one.process.pid}/io")
            else:
                text = os.pread(one.io_file, _WHOLE, 0)
        except OSError:  # it ended, or now runs another user's program
            return None
        if text != one.io_text:
            one.io_text, one.transferred = text, parse_transferred(text)
        return one.transferred
