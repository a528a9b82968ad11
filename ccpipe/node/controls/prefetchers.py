"""Hardware prefetchers of Intel processors, switched by one model-specific register.

Controls are named as LIKWID names them. Hardware threads of a core share its prefetchers. Of all
registers only this one is read and written, and of it only the bit of the requested prefetcher.

Source: Intel, *Disclosure of Hardware Prefetcher Control on Some Intel Processors*; msr(4).
"""

import contextlib
import errno
import functools
import json
import os
from collections.abc import Iterator
from pathlib import Path

from ccpipe.errors import DataError
from ccpipe.node.controls.control import Control, ControlChange, Tags, device, joined
from ccpipe.node.linux import proc

_REGISTER = 0x1A4
_SIZE = 8
_PREFETCHERS = {
    "l2_hwpf": (0, "stream prefetcher of the L2 cache: on or off"),
    "l2_adj_pf": (1, "prefetcher of adjacent lines into the L2 cache: on or off"),
    "l1_dcu": (2, "prefetcher of next lines into the L1 data cache: on or off"),
    "l1_dcu_ip": (3, "prefetcher of strides into the L1 data cache: on or off"),
}
"""Controls with the bit that is 1 where the prefetcher is off, and descriptions."""

_STATES = {"on": True, "off": False, "1": True, "0": False}  # LIKWID's values are 1 and 0
_FAMILY = "6"
_OTHER_BITS = frozenset({"87", "133"})
"""Models of family 6 whose bits have other meanings: Xeon Phi."""


class Prefetchers:
    """The prefetchers of each hardware thread's core."""

    def __init__(self, *, root: str = "/") -> None:
        self._root = Path(root)

    def controls(self) -> dict[str, Control]:
        try:
            if not self._is_known():
                return {}
            _read(next(iter(self._registers().values())))
        except OSError:  # no driver msr, no rights, or a virtual machine without the register
            return {}
        found = {"prefetcher": Control("hardware prefetchers", self.report)}
        for name, (bit, about) in _PREFETCHERS.items():
            get, put = functools.partial(self.get, bit), functools.partial(self.put, bit)
            found[f"prefetcher.{name}"] = Control(about, get, put, "hwthread")
        return found

    def report(self, tags: Tags) -> str:
        reported: dict[str, dict[str, str]] = {}
        for thread, path in self._chosen(tags).items():
            with contextlib.suppress(OSError):  # went offline
                value = _read(path)
                reported[f"hwthread:{thread}"] = {
                    name: _state(value, bit) for name, (bit, _) in _PREFETCHERS.items()
                }
        return json.dumps(reported)

    def get(self, bit: int, tags: Tags) -> str:
        states = _states(self._chosen(tags), bit)
        if tags.get("type", "node") == "node":
            return json.dumps(states)
        return next(iter(states.values()))

    def put(self, bit: int, value: str, tags: Tags) -> ControlChange:
        """Switch a prefetcher of all requested hardware threads; after an error, restore them."""
        if value not in _STATES:
            raise DataError(f"{value!r:.40} is neither on nor off")
        chosen = self._chosen(tags)
        before = _states(chosen, bit)
        try:
            for path in chosen.values():
                _switch(path, bit, is_on=_STATES[value])
        except OSError:
            for thread, path in chosen.items():
                with contextlib.suppress(OSError):
                    _switch(path, bit, is_on=_STATES[before[thread]])
            raise
        return ControlChange(joined(before), joined(_states(chosen, bit)))

    def _is_known(self) -> bool:
        """Return whether the processor is one whose register has these bits."""
        processor = proc.pairs(self._root / "proc/cpuinfo")
        return (
            processor.get("vendor_id") == "GenuineIntel"
            and processor.get("cpu family") == _FAMILY
            and processor.get("model") not in _OTHER_BITS
        )

    def _chosen(self, tags: Tags) -> dict[str, Path]:
        registers = self._registers()
        thread = device(tags, "hwthread", registers)
        return registers if thread is None else {thread: registers[thread]}

    def _registers(self) -> dict[str, Path]:
        """Return the file of each hardware thread's registers."""
        directory = self._root / "dev/cpu"
        found = {
            name: directory / name / "msr"
            for name in proc.names(directory)
            if name.isdecimal() and (directory / name / "msr").exists()
        }
        if not found:
            raise FileNotFoundError(
                errno.ENOENT, "no hardware thread has an msr file", str(directory)
            )
        return found


def _states(registers: dict[str, Path], bit: int) -> dict[str, str]:
    return {thread: _state(_read(path), bit) for thread, path in registers.items()}


def _state(value: int, bit: int) -> str:
    return "off" if value >> bit & 1 else "on"


def _read(path: Path) -> int:
    with _opened(path, os.O_RDONLY) as file:
        return _register(file)


def _switch(path: Path, bit: int, *, is_on: bool) -> None:
    """Change one bit of the register, and read it back."""
    with _opened(path, os.O_RDWR) as file:
        before = _register(file)
        wanted = before & ~(1 << bit) if is_on else before | 1 << bit
        if wanted != before:
            os.pwrite(file, wanted.to_bytes(_SIZE, "little"), _REGISTER)
        kept = _state(_register(file), bit)
        if kept != _state(wanted, bit):
            raise OSError(errno.EIO, f"the processor keeps the prefetcher {kept}")


def _register(file: int) -> int:
    data = os.pread(file, _SIZE, _REGISTER)
    if len(data) != _SIZE:
        raise OSError(errno.EIO, f"{len(data)} bytes instead of {_SIZE}")
    return int.from_bytes(data, "little")


@contextlib.contextmanager
def _opened(path: Path, flags: int) -> Iterator[int]:
    """Open a file; errors of reading and writing, too, name it."""
    file = os.open(path, flags | os.O_CLOEXEC)
    try:
        yield file
    except OSError as error:
        error.filename = str(path)
        raise
    finally:
        os.close(file)
