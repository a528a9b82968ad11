"""Cost of a poll of a large cluster: CPU, memory, and bytes in either mode.

    python -m benchmarks.slurm.poll [jobs [nodes]]

A directory of programs prints a simulated cluster in place of Slurm's commands: so many jobs wait,
a fifth as many run, and with each poll one in a thousand of the waiting ones starts and as many
end. CPU time includes this process and the programs that print. The aims: polled every 30 s, less
than a tenth of a core (3 s a poll) and 300 MB.
"""

import asyncio
import multiprocessing
import os
import resource
import sys
import tempfile
import time
from pathlib import Path
from typing import Literal

from ccpipe.config import Interval, Site
from ccpipe.formats.sonar import encode
from ccpipe.sources.slurm.poll import END, SACCT_COLUMNS, SEPARATOR
from ccpipe.sources.slurm.source import Slurm
from ccpipe.translate.slurm.to_sonar import SlurmToSonar

DATA = Path(__file__).parents[2] / "tests" / "data" / "slurm"
POLLS = 5
SITE = Site(cluster="fox", hostname="master")


class MadeCluster:
    """Writes what the commands print."""

    def __init__(self, directory: Path, jobs: int, nodes: int) -> None:
        self.directory, self.jobs, self.nodes = directory, jobs, nodes
        self.step = max(1, jobs // 1000)
        self.running = jobs // 5
        for name in ("sacct", "squeue", "scontrol", "sinfo"):
            program = directory / name
            program.write_text(f"#!/bin/sh\nexec cat {directory}/{name}.out\n")
            program.chmod(0o755)
        names = f"n[00001-{nodes:05}]"
        self.write("sinfo", f"normal*|{names}|mixed|\nsmall|n[00001-00100]|idle|\n")

    def write(self, name: str, text: str) -> None:
        """Write what a command prints next."""
        (self.directory / f"{name}.out").write_text(text)

    def advance(self, poll: int) -> None:
        """Let some jobs end and as many start."""
        first = 1 + poll * self.step
        last_running = first + self.running
        live = range(first, first + self.running + self.jobs)
        end = END + "\n"
        self.write("squeue", "".join(self.live(n, n < last_running, poll) + end for n in live))
        started = range(first, last_running)
        self.write("scontrol", "".join(map(self.detail, started)))
        ended = range(max(1, first - 10 * self.step), first)
        rows = (row for n in ended for row in self.rows(n))
        self.write("sacct", "".join(f"{row}\n" for row in rows))

    def live(self, n: int, is_running: bool, poll: int) -> str:
        """Return a job of squeue; its priority grows."""
        start, node = ("2026-11-20T10:00:00", self.node(n)) if is_running else ("N/A", "")
        reason = "None" if is_running else "Priority"
        return SEPARATOR.join([
            str(1000 + n + poll), str(n), str(n), "RUNNING" if is_running else "PENDING",
            f"user{n % 300}", str(1000 + n % 300), "physics", "normal", "1-00:00:00",
            "2026-11-20T09:00:00", start, "N/A", node, "1", "8", "(null)", f"job-{n}", "OK",
            reason,
        ])  # fmt: skip

    def detail(self, n: int) -> str:
        """Return a job of scontrol, as long as a real one."""
        text = (DATA / "scontrol" / "show_job_d_running.txt").read_text()
        return text.replace("JobId=35", f"JobId={n}").replace("c1", self.node(n)).replace(
            "2026-11-20T10:37:21", "2026-11-20T10:00:00"
        ).rstrip() + "\n\n"  # fmt: skip

    def rows(self, n: int) -> list[str]:
        """Return the rows of a job that ended, with two steps."""
        common = {
            "User": f"user{n % 300}", "Account": "physics", "State": "COMPLETED",
            "Submit": "2026-11-20T09:00:00", "Start": "2026-11-20T10:00:00",
            "End": "2026-11-20T11:00:00", "Suspended": "00:00:00", "Partition": "normal",
            "NodeList": self.node(n), "ReqCPUS": "8", "ReqMem": "16G", "ReqNodes": "1",
            "AllocTRES": "billing=8,cpu=8,mem=16G,node=1", "ExitCode": "0:0",
            "UserCPU": "01:12:00", "SystemCPU": "00:14.493", "JobName": f"job-{n}",
            "DBIndex": str(n),
        }  # fmt: skip
        found = []
        for step in ("", ".batch", ".0"):
            cells = {**common, "JobIDRaw": f"{n}{step}", "JobID": f"{n}{step}"}
            found.append(SEPARATOR.join(cells.get(name, "") for name in SACCT_COLUMNS))
        return found

    def node(self, n: int) -> str:
        """Return a job's node."""
        return f"n{1 + n % self.nodes:05}"


def cpu() -> tuple[float, float]:
    """Return CPU seconds of this process, and of those it waited for."""
    own, children = (
        resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )
    return own.ru_utime + own.ru_stime, children.ru_utime + children.ru_stime


async def measure(mode: Literal["delta", "full"], jobs: int, nodes: int) -> None:
    """Poll a simulated cluster in a mode and print what each poll costs."""
    with tempfile.TemporaryDirectory() as directory:
        spawn = multiprocessing.get_context("spawn")
        cluster = MadeCluster(Path(directory), jobs, nodes)
        source = Slurm(
            site=SITE, mode=mode, state_file=f"{directory}/state", bin_dir=directory,
            poll_interval=Interval(0.001), node_interval=Interval(0.001),
        )  # fmt: skip
        batches, translator = source.batches(), SlurmToSonar(site=SITE)
        for poll in range(POLLS):
            process = spawn.Process(target=cluster.advance, args=(poll,))
            process.start()  # so that what it makes is not in our memory
            process.join()
            before, begin, size, is_last = cpu(), time.perf_counter(), 0, False
            while not is_last:
                batch = await anext(batches)
                assert batch.ack
                await batch.ack()
                is_last = not batch.records
                envelopes = translator.feed(batch.records)
                after = cpu()
                size += sum(map(len, map(encode, envelopes)))
                skipped = cpu()[0] - after[0]  # the sink's work
                before = before[0] + skipped, before[1]
            own, children = (b - a for a, b in zip(before, cpu(), strict=True))
            seconds = time.perf_counter() - begin
            print(
                f"{mode:6} poll {poll}: {own:6.2f} s of CPU, {children:5.2f} s in commands, "
                f"{seconds:6.2f} s, {size / 1e6:9.3f} MB, {memory():4.0f} MB resident"
            )


def memory() -> float:
    """Return the memory of the process, in MB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


async def measure_snapshots() -> None:
    """Print the bytes of the captured snapshots in either mode."""
    for mode in ("full", "delta"):
        source = Slurm(site=SITE, mode=mode, replay_dir=str(DATA / "snapshots"), replay_speed=0)
        sizes, translator = [], SlurmToSonar(site=SITE)
        async for batch in source.batches():
            sizes.append(sum(map(len, map(encode, translator.feed(batch.records)))))
            assert batch.ack
            await batch.ack()
        print(f"snapshots, {mode}: {sum(sizes)} bytes in 14 polls")


def main() -> None:
    """Measure everything."""
    jobs, nodes = (*map(int, sys.argv[1:]), *(100_000, 10_000)[len(sys.argv) - 1 :])
    asyncio.run(measure_snapshots())
    asyncio.run(measure("delta", jobs, nodes))
    print(f"maximum: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3:.0f} MB resident")


if __name__ == "__main__":
    main()
