"""Speed of merging and extracting profiles, compared with the real sh5util on the same files.

::

    python -m benchmarks.slurm.profile                     # 64 nodes, 3600 samples, 8 tasks each
    python -m benchmarks.slurm.profile --nodes 4 --samples 600

Both run as processes of their own, so that starting Python counts: ccpipe's is the command that
users type, with modules that were compiled before, as in an installation. Both merge the same
node-step files and extract from their own merge; the CSV must agree to the last byte, or it ends
with an error. ccpipe also syncs its output to disk, which sh5util does not. The table has the
minimum of some alternating runs.
"""

import argparse
import getpass
import math
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

RUNS = 3
START = 1_795_170_814
JOB = 77

CONFIGURATION = """
ClusterName=test
SlurmctldHost=localhost
AuthType=auth/none
NodeName=c1
PartitionName=p Nodes=c1
AcctGatherProfileType=acct_gather_profile/hdf5
"""


class Cost(NamedTuple):
    """Resource usage of a process."""

    wall: float
    cpu: float


def write_node_step(path: Path, node: int, samples: int, tasks: int) -> None:
    """Write a node-step file whose tables grow side by side, as they do in a real step."""
    from ccpipe.formats.slurm_profile.table import NodeStep
    from ccpipe.formats.slurm_profile.writer import NodeStepWriter

    step = NodeStep(step="0", node=f"n{node:03}", node_index=node, tasks=tasks, cpus_per_task=1)
    with NodeStepWriter(path, step, start=START) as writer:
        for second in range(samples):
            wave = 1.1 + math.sin(second / 50 + node)
            writer.append("Energy", {"Power": int(200 * wave)}, START + second)
            for task in range(tasks):
                values = {
                    "CPUFrequency": 2_596_000,
                    "CPUTime": wave / 2,
                    "CPUUtilization": 50 * wave,
                    "GPUMemMB": 40_000,
                    "GPUUtilization": 45 * wave,
                    "RSS": int(2_000_000 * wave) + task,
                    "VMSize": 9_000_000,
                    "Pages": second // 100,
                    "ReadMB": wave,
                    "WriteMB": wave * 3,
                }
                writer.append("Tasks", values, START + second, node * tasks + task)
            if second % 10 == 9:
                writer.flush()


def cost(command: list[str], environment: dict[str, str]) -> Cost:
    """Run a command to its end."""
    begin = time.perf_counter()
    with subprocess.Popen(  # noqa: S603 - ours
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment
    ) as process:
        _, status, used = os.wait4(process.pid, 0)
        wall = time.perf_counter() - begin
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"{' '.join(command)[:200]} ended with {process.returncode}")
    return Cost(wall, used.ru_utime + used.ru_stime)


def least(runs: list[Callable[[], Cost]]) -> list[Cost]:
    """Return the least wall clock and CPU of several ways, which take turns."""
    found = [[run() for run in runs] for _ in range(RUNS)]
    return [Cost(*map(min, zip(*costs, strict=True))) for costs in zip(*found, strict=True)]


class Bench:
    """One directory of node-step files, and both programs on it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.files = directory / getpass.getuser()
        self.files.mkdir()
        (directory / "slurm.conf").write_text(CONFIGURATION)
        self.environment = {
            **os.environ,
            "SLURM_CONF": str(directory / "slurm.conf"),
            "PYTHONPYCACHEPREFIX": str(directory / "compiled"),
            "PYTHONDONTWRITEBYTECODE": "",
        }
        self.ccpipe("list", "--help")  # compiles them

    def sh5util(self, *arguments: object) -> Cost:
        """Run the real program."""
        command = ["sh5util", "-p", str(self.directory), "-j", str(JOB), *map(str, arguments)]
        return cost(command, self.environment)

    def ccpipe(self, *arguments: object) -> Cost:
        """Run the command ``ccpipe hdf5``."""
        command = [sys.executable, "-m", "ccpipe", "hdf5", *map(str, arguments)]
        return cost(command, self.environment)

    def merge(self) -> list[Cost]:
        """Merge with both."""
        theirs, ours = self.directory / "theirs.h5", self.directory / "ours.h5"

        def run() -> Cost:
            ours.unlink(missing_ok=True)
            return self.ccpipe("merge", "-j", JOB, "-p", self.directory, "-o", ours)

        return least([lambda: self.sh5util("-S", "-o", theirs), run])

    def extract(self, series: str, level: str) -> list[Cost]:
        """Extract with both, each from its own merge, and compare."""
        theirs, ours = self.directory / "theirs.csv", self.directory / "ours.csv"
        job, merged = self.directory / "theirs.h5", self.directory / "ours.h5"
        options = ("-s", series, "-l", level)
        found = least(
            [
                lambda: self.sh5util("-E", "-i", job, *options, "-o", theirs),
                lambda: self.ccpipe("extract", "-i", merged, *options, "-o", ours),
            ]
        )
        if theirs.read_bytes() != ours.read_bytes():
            sys.exit(f"{series}, {level}: the CSV differs")
        return found


def show(what: str, theirs: Cost, ours: Cost) -> None:
    """Print one row."""
    print(
        f"{what:<28} {theirs.wall:7.2f} s {ours.wall:7.2f} s {theirs.wall / ours.wall:6.2f}x"
        f" {theirs.cpu:7.2f} s {ours.cpu:7.2f} s {theirs.cpu / ours.cpu:6.2f}x"
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--nodes", type=int, default=64)
    parser.add_argument("--samples", type=int, default=3600)
    parser.add_argument("--tasks", type=int, default=8)
    wanted = parser.parse_args()
    if not shutil.which("sh5util"):
        sys.exit("sh5util is not installed: apt-get install slurm-wlm-hdf5-plugin")
    with tempfile.TemporaryDirectory() as name:
        bench = Bench(Path(name))
        begin = time.process_time()
        for node in range(wanted.nodes):
            path = bench.files / f"{JOB}_0_n{node:03}.h5"
            write_node_step(path, node, wanted.samples, wanted.tasks)
        written = time.process_time() - begin
        size = sum(path.stat().st_size for path in bench.files.iterdir())
        samples = wanted.nodes * wanted.samples * (wanted.tasks + 1)
        print(
            f"{wanted.nodes} node-step files, {wanted.samples} samples, {wanted.tasks} tasks:"
            f" {size / 2**20:.0f} MiB; {1e6 * written / samples:.0f} us of CPU to write a sample\n"
        )
        print(f"{'':<28} {'sh5util':>9} {'ccpipe':>9} {'':>7} {'CPU':>9} {'CPU':>9}")
        rows = {
            "merge": bench.merge(),
            "tasks, time series": bench.extract("Tasks", "Node:TimeSeries"),
            "tasks, totals": bench.extract("Tasks", "Node:Totals"),
            "energy, time series": bench.extract("Energy", "Node:TimeSeries"),
        }
        for what, (theirs, ours) in rows.items():
            show(what, theirs, ours)
        merged, extracted = rows["merge"], rows["tasks, time series"]
        sums = [
            Cost(a.wall + b.wall, a.cpu + b.cpu) for a, b in zip(merged, extracted, strict=True)
        ]
        show("merge and time series", *sums)


if __name__ == "__main__":
    main()
