"""Frequency policies of the processors: ``/sys/devices/system/cpu/cpufreq/policy*``.

Controls are named as LIKWID and cc-node-controller name them, frequencies are in kHz as there. One
policy governs one or several hardware threads, so that setting one sets all of its policy.
"""

import functools
import json
from collections.abc import Callable
from pathlib import Path

from ccpipe.errors import DataError
from ccpipe.node.controls.control import (
    Control,
    ControlChange,
    Tags,
    device,
    joined,
    quantity,
    reading,
    set_files,
)
from ccpipe.node.linux import proc

_FILES = {
    "governor": ("scaling_governor", "algorithm that chooses the frequency"),
    "min_cpu_freq": ("scaling_min_freq", "lowest frequency that may be chosen, in kHz"),
    "max_cpu_freq": ("scaling_max_freq", "highest frequency that may be chosen, in kHz"),
    "cur_cpu_freq": ("scaling_cur_freq", "frequency now, in kHz"),
    "avail_governors": ("scaling_available_governors", "available governors"),
    "avail_freqs": ("scaling_available_frequencies", "available frequencies, in kHz"),
    "hw_min_freq": ("cpuinfo_min_freq", "lowest frequency of the processor, in kHz"),
    "hw_max_freq": ("cpuinfo_max_freq", "highest frequency of the processor, in kHz"),
}
"""Controls with their files and descriptions; not every driver has all of them."""

_KHZ = {"": 1.0, "kHz": 1.0, "MHz": 1e3, "GHz": 1e6, "Hz": 1e-3}


class CpuFreq:
    """The frequency policies of the processors."""

    def __init__(self, *, root: str = "/") -> None:
        self._directory = Path(root, "sys/devices/system/cpu/cpufreq")

    def controls(self) -> dict[str, Control]:
        found = {"freq": Control("frequency policies of the processors", self.report)}
        try:
            directories = set(self._policies().values())
        except OSError:
            return found
        checks = {"governor": _governor, "min_cpu_freq": _min_freq, "max_cpu_freq": _max_freq}
        for name, (file, about) in _FILES.items():
            if any((directory / file).exists() for directory in directories):
                get = functools.partial(self.get, file)
                check = checks.get(name)
                put = functools.partial(self.put, file, check) if check else None
                found[f"freq.{name}"] = Control(about, get, put, "hwthread")
        return found

    def report(self, tags: Tags) -> str:
        wanted = self._chosen(tags)
        reported: dict[str, dict[str, object]] = {}
        for threads, directory in wanted.items():
            values: dict[str, object] = {"hwthreads": [int(thread) for thread in threads.split()]}
            for name, (file, _) in _FILES.items():
                if (word := proc.word(directory / file)) is not None:
                    values[name] = int(word) if word.isdecimal() else word
            reported[directory.name] = values
        return json.dumps(reported)

    def get(self, file: str, tags: Tags) -> str:
        wanted = self._chosen(tags)
        words = {
            threads: proc.text(directory / file).strip() for threads, directory in wanted.items()
        }
        if tags.get("type", "node") == "node":
            by_thread = {thread: words[threads] for threads in words for thread in threads.split()}
            return json.dumps(by_thread)
        return next(iter(words.values()))

    def put(
        self, file: str, check: Callable[[str, Path], str], value: str, tags: Tags
    ) -> ControlChange:
        """Set a value of all requested policies; if one fails, the others are restored."""
        directories = {
            threads: directory / file for threads, directory in self._chosen(tags).items()
        }
        wanted = {path: check(value, path.parent) for path in directories.values()}
        before = joined({threads: proc.text(path).strip() for threads, path in directories.items()})
        set_files(wanted)
        after = joined({threads: proc.text(path).strip() for threads, path in directories.items()})
        return ControlChange(before, after)

    def _chosen(self, tags: Tags) -> dict[str, Path]:
        """Return the requested policies, by their hardware threads: ``0 1``."""
        policies = self._policies()
        chosen = device(tags, "hwthread", policies)
        threads: dict[Path, list[str]] = {}
        for thread, directory in policies.items():
            threads.setdefault(directory, []).append(thread)
        wanted = threads if chosen is None else {policies[chosen]: threads[policies[chosen]]}
        return {" ".join(names): directory for directory, names in wanted.items()}

    def _policies(self) -> dict[str, Path]:
        """Return each online hardware thread's policy."""
        return {
            thread: self._directory / name
            for name in proc.names(self._directory, "policy*")
            for thread in proc.text(self._directory / name / "affected_cpus").split()
        }


def _governor(value: str, policy: Path) -> str:
    known = proc.text(policy / "scaling_available_governors").split()
    if value not in known:
        raise DataError(f"no governor {value!r:.40} (expected one of {', '.join(known)})")
    return value


def _min_freq(value: str, policy: Path) -> str:
    highest = reading(policy / "scaling_max_freq")
    return _between(value, reading(policy / "cpuinfo_min_freq"), highest)


def _max_freq(value: str, policy: Path) -> str:
    lowest = reading(policy / "scaling_min_freq")
    return _between(value, lowest, reading(policy / "cpuinfo_max_freq"))


def _between(value: str, lowest: int, highest: int) -> str:
    kilohertz = round(quantity(value, _KHZ))
    if not lowest <= kilohertz <= highest:
        raise DataError(f"{value:.40} is not between {lowest} and {highest} kHz")
    return str(kilohertz)
