"""The frequency that hardware threads run at now, in kHz.

Linux's cpufreq reports kHz; where a machine has none, as most virtual ones, ``/proc/cpuinfo``
reports MHz, which Slurm takes for kHz.
"""

import re
from pathlib import Path

from ccpipe.errors import DataError
from ccpipe.node.linux import proc

_LINE = re.compile(
    r"^(?:processor\s*:\s*(\d{1,5})|cpu MHz\s*:\s*(\d{1,6}(?:\.\d{1,6})?))$", re.MULTILINE
)


class Frequencies:
    """Frequencies of one node, each read at most once between two refreshes."""

    def __init__(self, root: str = "/") -> None:
        self._cpus = Path(root, "sys/devices/system/cpu")
        self._cpuinfo = Path(root, "proc/cpuinfo")
        self._has_cpufreq = True
        self._known: dict[int, int] = {}

    def refresh(self) -> None:
        """Read again what is asked for next."""
        self._known.clear()

    def of(self, cpu: int) -> int:
        """Return the frequency of a hardware thread in kHz; 0 if nothing reports it."""
        if cpu not in self._known:
            value = self._cpufreq(cpu) if self._has_cpufreq else None
            if value:
                self._known[cpu] = value
            else:
                self._has_cpufreq = False
                self._known |= self._from_cpuinfo()
        return self._known.setdefault(cpu, 0)

    def _cpufreq(self, cpu: int) -> int | None:
        folder = self._cpus / f"cpu{cpu}" / "cpufreq"
        try:
            found = proc.number(folder / "cpuinfo_cur_freq")
            return proc.number(folder / "scaling_cur_freq") if found is None else found
        except DataError:
            return None

    def _from_cpuinfo(self) -> dict[int, int]:
        found: dict[int, int] = {}
        cpu = -1
        try:
            text = proc.text(self._cpuinfo)
        except OSError:
            return found
        for line in _LINE.finditer(text):
            if line[1]:
                cpu = int(line[1])
            else:
                found[cpu] = round(float(line[2]) * 1000)
        return found
