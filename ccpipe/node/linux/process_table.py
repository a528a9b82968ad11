"""The processes of the node, from one walk over ``/proc/<pid>/stat``, and other files of each.

Readers in the same slot share that walk: the collector ``processes``, which counts them, and
Sonar's sample, which reads more files of each. A reader of one file returns None if the process
ended, may not be read, or has no such file.
Source: Linux, ``Documentation/filesystems/proc.rst``.
"""

import os
import re
import resource
import threading
from time import monotonic
from typing import NamedTuple, Self

from ccpipe.errors import DataError

_WHOLE = 65536  # bytes: more than any file of a process that is read here
_SHORT = 4096  # bytes: more than ``stat`` or ``io`` of a process
_SPARE = 256  # file descriptors left for others
_CLOSED = -1
_FIELDS = 37  # read after the name
_MAX = 2**63
_TICKS = os.sysconf("SC_CLK_TCK")
_MAX_ENVIRONMENT = 8 * 2**20  # bytes: the kernel allows 6 MiB
_IO = re.compile(rb"rchar: (\d{1,20})\nwchar: (\d{1,20})\n")
_PSS = re.compile(rb"^Pss: +(\d{1,15}) kB$", re.MULTILINE)


class Process(NamedTuple):
    """One line of the table; times are in the kernel's ticks (proc_pid_stat(5))."""

    pid: int
    name: str
    """At most 15 bytes, except for kernel threads; invalid UTF-8 becomes ``\ufffd``."""
    state: str
    """``R``: running, ``T``: stopped, ``Z``: a zombie, ``X``: being removed, and others."""
    ppid: int
    group: int  # the process group; 0 for threads of the kernel
    own: int  # processor time of its own
    reaped: int  # processor time of children that ended and were waited for
    threads: int
    start: int
    """When it started, since the boot: with ``pid`` it identifies a process."""
    system: int = 0  # the part of `own` that the kernel ran for it
    reaped_system: int = 0  # the part of `reaped` that the kernel ran for them
    faults: int = 0  # major page faults of its own
    reaped_faults: int = 0  # major page faults of children that ended and were waited for
    virtual: int = 0  # bytes of address space
    resident: int = 0  # pages in memory
    processor: int = 0  # the hardware thread that it ran on last


class ProcessScan(NamedTuple):
    """The result of one scan of ``/proc``."""

    processes: list[Process]
    errors: list[DataError]  # invalid files
    at: float  # when it began, by the monotonic clock


def find_process(pid: int, root: str = "/") -> Process | None:
    text = read(os.path.join(root, f"proc/{pid}/stat"))  # noqa: PTH118 - as above
    try:
        return parse_process(text)
    except (ValueError, IndexError):
        return None


def start_time(pid: int, root: str = "/") -> float | None:
    """Return when a process started, in seconds since the boot; None if it ended."""
    found = find_process(pid, root)
    return None if found is None else found.start / _TICKS


def read(path: str) -> bytes:
    """Return a file of one process; empty if it ended, or may not be read.

    The kernel returns these whole at the first read, which halves the cost of a walk.
    """
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        return os.read(file, _WHOLE)
    except OSError:
        return b""
    finally:
        os.close(file)


def parse_process(text: bytes) -> Process:
    """Read a line of the table (proc_pid_stat(5)); raises ValueError, IndexError.

    A name may contain anything, also brackets, blanks and line ends.
    """
    head, _, rest = text.rpartition(b") ")
    pid, _, name = head.partition(b" (")
    words = rest.split(b" ", _FIELDS)
    if len(words[0]) != 1:
        raise ValueError(words[0])
    process = Process(
        int(pid),
        name.decode(errors="replace"),
        words[0].decode(),
        int(words[1]),
        max(0, int(words[2])),
        int(words[11]) + (system := int(words[12])),
        max(0, int(words[13])) + (reaped_system := max(0, int(words[14]))),
        int(words[17]),
        int(words[19]),
        system,
        reaped_system,
        int(words[9]),
        int(words[10]),
        *_memory_and_processor(words),
    )
    numbers = (process.pid, *process[3:])
    if min(numbers) < 0 or max(numbers) >= _MAX:
        raise ValueError(text)
    return process


def _memory_and_processor(words: list[bytes]) -> tuple[int, int, int]:
    """Return virtual and resident memory and the processor; zeros if the line is shorter."""
    if len(words) < _FIELDS:
        return 0, 0, 0
    resident = int(words[21])
    # The kernel adds up counters of its processors, which may be below 0, and writes it unsigned.
    return int(words[20]), resident if resident < _MAX else 0, int(words[36])


def parse_transferred(text: bytes) -> tuple[int, int] | None:
    """Read the file ``io``: bytes read and written by calls, also of children waited for."""
    found = _IO.match(text)
    return None if found is None else (int(found[1]), int(found[2]))


def read_environment(directory: str) -> dict[str, str]:
    """Return the environment that a process's program was started with; empty if it ended."""
    try:
        with open(f"{directory}/environ", "rb") as file:  # noqa: PTH123 - as the other paths here
            text = file.read(_MAX_ENVIRONMENT)
    except OSError:
        return {}
    pairs = (word.decode(errors="replace").partition("=") for word in text.split(b"\0"))
    return {name: value for name, sign, value in pairs if sign}


def owner_of(directory: str) -> int | None:
    """Return the owner of a process's directory, which is its effective user; None if it ended.

    The kernel takes ten times as long to write the file ``status``, which names the user, too.
    """
    try:
        return os.stat(directory).st_uid  # noqa: PTH116 - as the other paths here
    except OSError:
        return None


def proportional(directory: str) -> int | None:
    """Return the proportional set size in bytes: shared pages count by the number of sharers.

    The kernel walks all pages for this: a quarter of a millisecond for a small process.
    """
    text = read(f"{directory}/smaps_rollup") or read(f"{directory}/smaps")  # before Linux 4.14
    sizes = _PSS.findall(text)
    return sum(map(int, sizes)) * 1024 if sizes else None


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

    @property
    def open_files(self) -> int:
        return (self.stat_file != _CLOSED) + (self.io_file != _CLOSED)

    def __del__(self) -> None:
        for file in (self.stat_file, self.io_file):
            if file != _CLOSED:
                os.close(file)


class OpenProcesses:
    """Repeated walks over the processes of the node. Not to be used by several threads at a time.

    Files stay open between walks, and unchanged lines are not parsed again: that costs less than
    half as much. An open file is tied to its process: once that has ended it cannot be read, even
    if the pid is reused. `limit` files may stay open; otherwise as many as leave the
    process some to work with.
    """

    def __init__(self, *, root: str = "/", limit: int | None = None) -> None:
        self._path = os.path.join(root, "proc")  # noqa: PTH118 - hundreds of paths cost too much
        soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        self._limit = max(0, soft - _SPARE) if limit is None else limit
        self._open = 0
        self._known: dict[int, OpenProcess] = {}
        self.errors: list[DataError] = []
        """Invalid lines of the last walk."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._known = {}
        self._open = 0

    def walk(self) -> dict[int, OpenProcess]:
        """Return the processes by pid; invalid lines are skipped and in `errors`."""
        listed = set(map(int, filter(str.isdecimal, os.listdir(self._path))))  # noqa: PTH208
        known, pread = self._known, os.pread
        self.errors = []
        for pid in known.keys() - listed:
            self._open -= known.pop(pid).open_files
        changed: list[tuple[int, OpenProcess | None, bytes]] = []
        for pid, one in known.items():
            text = b""
            if one.stat_file != _CLOSED:
                try:
                    text = pread(one.stat_file, _SHORT, 0)
                except OSError:  # it ended, and its pid may be reused
                    changed.append((pid, None, b""))
                    continue
            if text != one.stat_text:
                changed.append((pid, one, text))
        changed += [(pid, None, b"") for pid in listed.difference(known)]
        for pid, last, text in changed:
            before, renewed = known.pop(pid, None), self._renew(pid, last, text)
            if renewed is not None:
                known[pid] = renewed
            if before is not None and before is not renewed:
                self._open -= before.open_files
        return dict(known)

    def _renew(self, pid: int, one: OpenProcess | None, text: bytes) -> OpenProcess | None:
        """Return a process that is new, or whose line changed; None if it has ended."""
        path = f"{self._path}/{pid}/stat"
        stat = _CLOSED
        if one is None and self._open < self._limit:
            try:
                stat = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
                self._open += 1
                text = os.pread(stat, _SHORT, 0)
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
            if text:  # else it ended meanwhile
                self.errors.append(DataError(f"{path}: {text!r:.60} is not a process"))
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
                text = os.pread(one.io_file, _SHORT, 0)
        except OSError:  # it ended, or now runs another user's program
            return None
        if text != one.io_text:
            one.io_text, one.transferred = text, parse_transferred(text)
        return one.transferred


class ProcessTable:
    """The processes of the node, walked once a slot; thread-safe."""

    def __init__(self, *, root: str = "/") -> None:
        # The files of a captured tree do not end with a process: they are opened for each walk.
        self._processes = OpenProcesses(root=root, limit=None if root == "/" else 0)
        self._lock = threading.Lock()
        self._slot: int | None = None
        self._last = ProcessScan([], [], 0.0)

    def at(self, time: int) -> ProcessScan:
        """Return the processes at the slot `time`; the lists must not be changed."""
        with self._lock:
            if time != self._slot:
                at, walk = monotonic(), self._processes.walk()
                processes = [one.process for one in walk.values()]
                self._last = ProcessScan(processes, self._processes.errors, at)
                self._slot = time
            return self._last
