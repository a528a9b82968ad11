"""Nodes that start one installation at once: namespaces with a name and a read-only mount each."""

import os
import statistics
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ENTER = """
set -e
mount --bind "$INSTALLATION" "$INSTALLATION"
mount -o remount,bind,ro "$INSTALLATION"
if touch "$INSTALLATION/written" 2>/dev/null; then echo "$INSTALLATION is not read-only"; exit 1; fi
ip link set lo up
hostname "$NODE"
exec "$@"
"""


@dataclass(frozen=True, slots=True)
class Starts:
    """What the nodes printed, by name, and what it took."""

    outputs: dict[str, str]
    cpu_seconds: float
    """The median of the nodes."""
    elapsed_seconds: float
    """From the first start to the last end."""


def start_on_nodes(
    installation: Path, count: int, command: Sequence[str | Path], scratch: Path
) -> Starts:
    """Run a command on nodes n000, n001, … all at once; fail if it fails on one of them."""
    own = ("--map-root-user", "--mount", "--net", "--uts")
    names = [f"n{number:03}" for number in range(count)]
    began = time.monotonic()
    processes = {}
    for name in names:
        environ = {
            "PATH": os.environ["PATH"] + ":/usr/sbin:/sbin", "LC_ALL": "C.UTF-8", "NODE": name,
            "INSTALLATION": str(installation), "XDG_STATE_HOME": str(scratch / name),
        }  # fmt: skip
        with (scratch / f"{name}.out").open("wb") as out:
            words = ["unshare", *own, "sh", "-c", ENTER, "sh", *map(str, command)]
            process = subprocess.Popen(words, env=environ, stdout=out, stderr=subprocess.STDOUT)
        processes[process.pid] = (name, process)
    spent = []
    for pid, (name, process) in processes.items():
        _, status, usage = os.wait4(pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        assert process.returncode == 0, (scratch / f"{name}.out").read_text()
        spent.append(usage.ru_utime + usage.ru_stime)
    outputs = {name: (scratch / f"{name}.out").read_text() for name in names}
    return Starts(outputs, statistics.median(spent), time.monotonic() - began)
