"""Terminal output: messages on stderr, progress, colour, counts, and escaping."""

import contextlib
import io
import os
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from typing import IO, Any, ClassVar

from ccpipe.errors import OutputError

PROGRESS_DELAY = 2.0
"""Seconds after which progress is shown on a terminal."""

_COLOURS = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}


def has_colour(stream: IO[Any]) -> bool:
    """Whether to use colour: on a terminal, unless ``NO_COLOR`` is set (no-color.org)."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def paint(text: str, colour: str, stream: IO[Any] | None = None) -> str:
    """Colour a text for a stream (default: stdout) that supports colour."""
    if not (text and colour and has_colour(stream or sys.stdout)):
        return text
    return f"\x1b[{_COLOURS[colour]}m{text}\x1b[0m"


def note(text: str, colour: str = "dim") -> None:
    """Print a message for people on stderr, apart from the data on stdout."""
    Progress.clear()
    text = "\n".join(map(printable, text.split("\n")))
    print(paint(text, colour, sys.stderr), file=sys.stderr, flush=True)


def data_for_stdout(data: bytes) -> bytes:
    """Return data as it is; for a terminal with everything escaped that could control it."""
    if not os.isatty(1):
        return data
    lines = (line.decode(errors="backslashreplace") for line in data.split(b"\n"))
    return "\n".join(map(printable, lines)).encode()


class _Stdout(io.FileIO):
    """File descriptor 1; write errors raise OutputError."""

    def __init__(self, *, is_data: bool) -> None:
        super().__init__(1, "w", closefd=False)
        self._is_data = is_data

    def write(self, data: Any, /) -> int:
        try:
            if self._is_data and self.isatty():
                rest = memoryview(data_for_stdout(bytes(data)))
                while rest:
                    rest = rest[super().write(rest) or 0 :]
                return len(data)
            return super().write(data) or 0
        except BrokenPipeError:
            raise  # the reader has exited: `ccpipe tail | head`
        except OSError as error:
            raise OutputError(f"standard output: {error.strerror}") from None


def open_stdout(*, is_data: bool = True) -> IO[bytes]:
    """Return stdout for bytes, with a separate buffer that is not flushed at exit.

    Data is escaped for a terminal, as ``data_for_stdout`` does.
    """
    return io.BufferedWriter(_Stdout(is_data=is_data))


def prepare_streams() -> None:
    """Make stdout and stderr of a command safe to write to.

    A closed one (``>&-``) is replaced, so that the next file or socket does not get its
    descriptor. Errors of stdout raise OutputError; characters missing in the locale are escaped.
    Progress is shown from now on.
    """
    Progress.is_enabled = True
    for number, name in enumerate(("stdout", "stderr"), 1):
        if getattr(sys, name) is None:
            closed = os.open(os.devnull, os.O_RDONLY if number == 1 else os.O_WRONLY)
            if closed != number:
                os.dup2(closed, number)
                os.close(closed)
            setattr(sys, name, open(number, "w", closefd=False))  # noqa: SIM115
    encoding = sys.stdout.encoding
    sys.stdout = io.TextIOWrapper(
        open_stdout(is_data=False),
        encoding=encoding,
        errors="backslashreplace",
        line_buffering=sys.stdout.isatty(),
        write_through=False,
    )
    sys.stderr.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]


class Progress:
    """A progress line on stderr, if that is a terminal and the work takes some time.

    The terminal has one such line: `note` and `clear` erase it, whoever shows it.
    """

    is_enabled: ClassVar = False
    """Whether this process is a command of ours, not a program that uses the library."""
    _is_shown: ClassVar = False

    def __init__(self) -> None:
        self.next = time.monotonic() + PROGRESS_DELAY

    def show(self, text: str) -> None:
        if time.monotonic() >= self.next and self.is_enabled and sys.stderr.isatty():
            text = printable(text)[: _width_of_stderr() - 1]  # a wrapped line would stay
            print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)
            self.next = time.monotonic() + PROGRESS_DELAY / 4
            Progress._is_shown = True

    @staticmethod
    def clear() -> None:
        """Erase the line; call it before anything else is printed on the terminal."""
        if Progress._is_shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
            Progress._is_shown = False


def _width_of_stderr() -> int:
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns or 80
    except (OSError, ValueError):
        return 80


@contextlib.contextmanager
def working(text: str) -> Iterator[None]:
    """Show a text, and for how many seconds, while work is done that cannot say how far it is.

    Nothing else may be written to a terminal meanwhile, except by `note`.
    """
    if not (Progress.is_enabled and sys.stderr.isatty()):
        yield
        return
    begin, ended = time.monotonic(), threading.Event()

    def show() -> None:
        progress = Progress()
        is_working = True
        while is_working:
            progress.show(f"{text}: {time.monotonic() - begin:.0f} s")
            is_working = not ended.wait(PROGRESS_DELAY / 8)

    thread = threading.Thread(target=show, name="ccpipe-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        Progress.clear()


def plural(count: int, word: str) -> str:
    """Format a count with a noun: ``1 line``, ``12 345 lines``."""
    return f"{count:,}".replace(",", " ") + f" {word}" + ("" if count == 1 else "s")


def listed(words: Iterable[str], maximum: int = 3) -> str:
    """Join the first few words of a list: ``a, b, c and 4 more``."""
    words = list(words)
    more = f" and {len(words) - maximum} more" if len(words) > maximum else ""
    return ", ".join(words[:maximum]) + more


def format_duration(seconds: float) -> str:
    """Format a duration in the largest fitting unit: ``45 s``, ``50 min``, ``3 d``."""
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def format_elapsed(seconds: float) -> str:
    """Format an elapsed time as Slurm does, without leading zeros: ``4:45:19``, ``1-00:00:00``."""
    minutes, second = divmod(max(0, round(seconds)), 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    return (f"{days}-{hour:02}" if days else f"{hour}") + f":{minute:02}:{second:02}"


def in_bytes(size: float) -> str:
    """Format a size with three digits: ``512 B``, ``1.5 GiB``."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1000:  # noqa: PLR2004 - three digits
            return f"{size:.3g} {unit}"
        size /= 1024
    return f"{size:.3g} TiB"


def printable(text: str) -> str:
    """Escape non-printable characters, so that no text can control the terminal."""
    return (
        text
        if text.isprintable()
        else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)
    )
