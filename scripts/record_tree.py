"""Record what collectors read in ``/proc`` and ``/sys``, several times: a tree that changes.

::

    python scripts/record_tree.py 12 10 > tests/data/recorded/NAME.txt.xz

The numbers are the number of readings and the seconds between two. The format is as in
``tests/data/sys``, with all readings, each with only the changed files. The names of processes and
all mounts except the root are left out, as are its mount options: they identify people.
"""

import io
import lzma
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path

PATTERNS = (
    "proc/stat",
    "proc/loadavg",
    "proc/meminfo",
    "proc/diskstats",
    "proc/cpuinfo",
    "proc/net/dev",
    "proc/net/rpc/nfs",
    "proc/pressure/*",
    "proc/self/mounts",
    "proc/[0-9]*/stat",
    "sys/devices/system/cpu/online",
    "sys/devices/system/cpu/cpu[0-9]*/cpufreq/scaling_cur_freq",
    "sys/devices/system/node/node[0-9]*/meminfo",
    "sys/devices/system/node/node[0-9]*/numastat",
    "sys/class/powercap/intel-rapl:*/name",
    "sys/class/powercap/intel-rapl:*/*_uj",
)
_NAME = re.compile(r"\(.*\)", re.DOTALL)


def read(root: Path) -> dict[str, str]:
    """Return the contents of the files, by path; missing and unreadable ones are left out."""
    found = {}
    for pattern in PATTERNS:
        for path in sorted(root.glob(pattern)):
            try:
                text = path.read_text(encoding="utf-8", errors="replace")
            except OSError:
                continue
            found[f"/{path.relative_to(root)}"] = _without_names(path, text)
    return found


def _without_names(path: Path, text: str) -> str:
    if path.name == "mounts":
        mounts = (line.split(" ") for line in text.splitlines())
        return "".join(f"{' '.join(words[:3])} rw 0 0\n" for words in mounts if words[1] == "/")
    if path.name == "stat" and path.parent.name.isdecimal():
        return _NAME.sub("(process)", text)
    return text


def changes(before: dict[str, str], now: dict[str, str]) -> Iterator[str]:
    """Yield a reading: new and changed files, then removed ones."""
    for path, text in now.items():
        if before.get(path) != text:
            yield f"## {path}\n{text}" + ("" if text.endswith("\n") else "\n")
    for path in before.keys() - now.keys():
        yield f"- {path}\n"


def main(readings: int, seconds: float, root: Path = Path("/")) -> None:
    """Write the packed tree to standard output."""
    before: dict[str, str] = {}
    with (
        lzma.LZMAFile(sys.stdout.buffer, "w", preset=9) as file,
        io.TextIOWrapper(file, encoding="utf-8") as packed,
    ):
        for number in range(readings):
            if number:
                time.sleep(seconds)
            now = read(root)
            packed.write(f"@ {number}\n" + "".join(changes(before, now)))
            before = now


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]))
