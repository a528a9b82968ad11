"""Data of one process in a Sonar sample that is not in its ``stat`` line.

Memory is resident without shared memory, from ``/proc/<pid>/statm``: ``RssAnon`` of ``status``; or
the proportional share (PSS) where that is wanted and permitted. Virtual memory is data and stack:
``VmData`` and ``VmStk``. Data read and written are ``rchar`` and ``wchar`` of ``/proc/<pid>/io``,
which count all calls, as the specification has it (Sonar 0.19 reports ``read_bytes`` and
``write_bytes``, which count those that reached a disk); only root may read them of others'
processes.

Source: Sonar JSON format output specification, *SampleProcess*, *SampleJob*.
"""

import os
import pwd
import re
from collections.abc import Iterable
from typing import NamedTuple

from ccpipe.errors import DataError
from ccpipe.formats.sonar.sums import inherited
from ccpipe.node.collectors.sonar.envelope import readable
from ccpipe.node.linux import proc
from ccpipe.node.linux.process_table import Process, ProcessScan, owner_of, proportional, read

TICKS = os.sysconf("SC_CLK_TCK")  # of a second: the unit of the kernel's times

_PAGE = os.sysconf("SC_PAGE_SIZE") // 1024
_MAX_PAGES = 2**52
_IO = re.compile(
    rb"rchar: (\d{1,20})\nwchar: (\d{1,20})\n.*\ncancelled_write_bytes: (\d{1,20})\n", re.DOTALL
)
_USERS = 10_000  # names that are remembered


class MemoryUse(NamedTuple):
    """In units of 2¹⁰ bytes."""

    resident: int = 0
    virtual: int = 0


class Data(NamedTuple):
    """Read, written, and written but never put onto a disk, in units of 2¹⁰ bytes."""

    read: int = 0
    written: int = 0
    cancelled: int = 0


class ProcessFiles:
    """The files of processes; empty for those that ended or may not be read."""

    def __init__(self, *, pss: bool = False, root: str = "/") -> None:
        self._pss = pss
        self._path = os.path.join(root, "proc")  # noqa: PTH118 - hundreds of paths cost too much

    def owner(self, pid: int) -> int | None:
        """Return the number of the effective user; None if the process ended."""
        return owner_of(f"{self._path}/{pid}")

    def memory(self, pid: int) -> MemoryUse | None:
        """Return the memory, 0 for a thread of the kernel; None if the process ended."""
        path = f"{self._path}/{pid}/statm"
        words = read(path).decode(errors="replace").split()
        if not words:
            return None
        pages = proc.counters(path, words, minimum=6)
        if max(pages) > _MAX_PAGES:
            raise DataError(f"{path}: {max(pages)} pages are more than an address space")
        resident, virtual = max(0, pages[1] - pages[2]) * _PAGE, pages[5] * _PAGE
        if self._pss and pages[1]:
            share = proportional(f"{self._path}/{pid}")
            resident = resident if share is None else share // 1024
        return MemoryUse(resident, virtual)

    def data(self, pid: int) -> Data:
        path = f"{self._path}/{pid}/io"
        text = read(path)
        if not text:
            return Data()
        found = _IO.match(text)
        if found is None:
            raise DataError(f"{path}: {text!r:.60} is not a process's I/O counters")
        rchar, wchar, cancelled = map(int, found.groups())
        return Data(-(-rchar // 1024), -(-wchar // 1024), -(-cancelled // 1024))


class Users:
    """Names of users, looked up once each."""

    def __init__(self) -> None:
        self._names: dict[int, str] = {}
        self._unknown: set[int] = set()

    def name(self, number: int) -> str:
        """Return a user's name; ``_user_<number>`` where it is not known."""
        if number not in self._names and number not in self._unknown:
            try:
                self._names[number] = readable(pwd.getpwuid(number).pw_name)
            except (KeyError, OverflowError):
                self._unknown.add(number)
        return self._names.get(number) or f"_user_{number}"

    def refresh(self) -> None:
        """Forget users without a name: the directory may have been unavailable."""
        self._unknown.clear()
        if len(self._names) > _USERS:
            self._names.clear()


_CONTAINERS = ("containerd", "conmon")


def in_containers(processes: Iterable[Process]) -> set[int]:
    """Return the processes that run in a container.

    They descend from the ``containerd`` of Docker and Kubernetes or the ``conmon`` of Podman,
    which are children of process 1. Apptainer's are the user's own processes and not distinguished.
    """
    children: dict[int, list[int]] = {}
    found: list[int] = []
    for process in processes:
        children.setdefault(process.ppid, []).append(process.pid)
        if process.ppid == 1 and process.name.startswith(_CONTAINERS):
            found.append(process.pid)
    inside: set[int] = set()
    while found:
        below = [pid for pid in children.get(found.pop(), ()) if pid not in inside]
        inside.update(below)
        found += below
    return inside


class CpuUse:
    """The share of a processor that each process had between two walks, in percent.

    The time of children that ended counts for the process that waited for them, except for time
    already reported for the child itself: otherwise the end of a long-lived child would look like
    many processors at work. Process numbers are reused, so a process is identified by its start
    time too.
    """

    def __init__(self) -> None:
        self._before: dict[int, Process] | None = None
        self._at = 0.0

    def since(self, walk: ProcessScan) -> dict[int, float]:
        """Return percentages by process; none for the first walk.

        All time of a new process counts, since it was used after the last walk.
        """
        now = {process.pid: process for process in walk.processes}
        before, self._before = self._before, now
        ticks, self._at = (walk.at - self._at) * TICKS, walk.at
        if ticks <= 0 or before is None:
            return {}
        lasting = {
            pid: then for pid, then in before.items() if pid in now and now[pid].start == then.start
        }
        ended = {pid: (p.own + p.reaped,) for pid, p in before.items() if pid not in lasting}
        parents = {pid: process.ppid for pid, process in before.items()}
        counted = inherited(ended, parents, lasting)
        use = {}
        for pid, process in now.items():
            then = lasting.get(pid)
            own, reaped = (then.own, then.reaped) if then else (0, 0)
            of_children = process.reaped - reaped - counted.get(pid, (0,))[0]
            use[pid] = 100 * (max(0, process.own - own) + max(0, of_children)) / ticks
        return use
