"""Speed of ``ccpipe acct``, compared with a plain Python script and the real qacct in one run.

::

    python -m benchmarks.gridengine.acct                       # 1 million records
    python -m benchmarks.gridengine.acct --index 10_000_000    # an index too: 3 GB

All answer the same question, the sums for each owner, then one job by its number, as processes of
their own; the table has the minimum of some runs. The answers must agree to the last printed
digit, or it ends with an error.
"""

import argparse
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

RUNS = 3
CHUNK = 100_000
FIRST_JOB = 1000
REAL = (
    (Path(__file__).parents[2] / "tests" / "data" / "gridengine" / "accounting")
    .read_text()
    .splitlines(keepends=True)
)

PLAIN = """
import csv, sys
from collections import defaultdict
SUMS = ("ru_wallclock", "ru_utime", "ru_stime", "cpu", "mem", "io", "iow")
totals = defaultdict(lambda: dict.fromkeys(SUMS, 0.0))
with open(sys.argv[1], newline="") as file:
    lines = (line for line in file if not line.startswith("#"))
    for row in csv.DictReader(lines, sys.argv[2].split(), delimiter=":", quoting=csv.QUOTE_NONE):
        total = totals[row["owner"]]
        for name in SUMS:
            total[name] += float(row[name])
for owner in sorted(totals):
    wallclock, *others = totals[owner].values()
    print(owner, f"{wallclock:.0f}", *(f"{other:.3f}" for other in others))
"""
"""A plain script, as written without a better tool."""

FIELDS = (
    "qname hostname group owner job_name job_number account priority submission_time start_time"
    " end_time failed exit_status ru_wallclock ru_utime ru_stime ru_maxrss ru_ixrss ru_ismrss"
    " ru_idrss ru_isrss ru_minflt ru_majflt ru_nswap ru_inblock ru_oublock ru_msgsnd ru_msgrcv"
    " ru_nsignals ru_nvcsw ru_nivcsw project department granted_pe slots task_number cpu mem io"
    " category iow pe_taskid maxvmem arid ar_submission_time"
)


class Cost(NamedTuple):
    """Resource usage of a process."""

    wall: float
    cpu: float
    memory: float
    """MiB at the peak."""
    out: str


def write_accounting(path: Path, records: int) -> None:
    """Write a classic file as a busy site has it; job numbers grow."""
    dice = random.Random(1)
    with path.open("w") as file:
        file.write("# Version: 8.1.9\n# \n# DO NOT MODIFY THIS FILE MANUALLY!\n# \n")
        file.writelines(_lines(dice, records))


def write_real(path: Path, records: int) -> None:
    """Write the lines of the real sample over and over; job numbers grow."""
    head, lines = REAL[:4], [line.split(":", 6) for line in REAL[4:]]
    with path.open("w") as file:
        file.writelines(head)
        for number in range(records):
            parts = lines[number % len(lines)]
            parts[5] = str(FIRST_JOB + number // 3)
            file.write(":".join(parts))


def _lines(dice: random.Random, records: int) -> Iterator[str]:
    parts = [_parts(dice) for _ in range(min(records, CHUNK))]
    for number in range(records):
        before, after = parts[number % len(parts)]
        yield f"{before}{1000 + number // 3}{after}"


def _parts(dice: random.Random) -> tuple[str, str]:
    """Make up a record and leave out its job number."""
    user, slots = dice.randrange(200), dice.choice((1, 1, 1, 4, 8))
    submitted = 1_700_000_000 + dice.randrange(10**7)
    start = submitted + dice.randrange(9000)
    wall = dice.randrange(90_000)
    cpu = wall * slots * dice.random()
    pe = "NONE" if slots == 1 else "mpi"
    before = (
        f"{dice.choice(('all.q', 'long.q', 'gpu.q'))}:node{dice.randrange(300):03d}.cluster.example"
        f":group{user % 9}:user{user:03d}:job{dice.randrange(1000)}:"
    )
    after = (
        f":sge:0:{submitted}:{start}:{start + wall}:{dice.choice((0, 0, 0, 0, 100))}:0:{wall}"
        f":{cpu * 0.9:.6f}:{cpu * 0.1:.6f}:{dice.randrange(10**7)}.000000:0:0:0:0:539:1:0:16.000000"
        f":8:0:0:0:4:2:NONE:defaultdepartment:{pe}:{slots}:0:{cpu:.6f}:{cpu * 1.5:.6f}"
        f":{dice.random():.6f}:-l h_rt=86400,h_vmem=2G:0.000000:NONE"
        f":{dice.randrange(10**10)}.000000:0:0\n"
    )
    return before, after


def cost(command: list[str], environment: dict[str, str] | None = None) -> Cost:
    """Run a command to its end."""
    begin = time.perf_counter()
    with (
        tempfile.TemporaryFile("w+") as out,
        subprocess.Popen(command, stdout=out, env=environment) as process,  # noqa: S603 - ours
    ):
        _, status, used = os.wait4(process.pid, 0)
        wall = time.perf_counter() - begin
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            sys.exit(f"{' '.join(command)[:200]} ended with {process.returncode}")
        out.seek(0)
        return Cost(wall, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024, out.read())


def minimum(run: Callable[[], Cost]) -> Cost:
    """Return the cheapest of some runs."""
    return min((run() for _ in range(RUNS)), key=lambda found: found.wall)


def ccpipe(*arguments: object) -> list[str]:
    """Return a command line."""
    return [sys.executable, "-m", "ccpipe", "acct", "gridengine", *map(str, arguments)]


def qacct(directory: Path, file: Path, *arguments: object) -> Cost | None:
    """Run the real program, which requires the files of a cell; None if it is missing."""
    if not shutil.which("qacct"):
        return None
    common = directory / "root" / "default" / "common"
    common.mkdir(parents=True, exist_ok=True)
    (common / "act_qmaster").write_text("localhost\n")
    (common / "bootstrap").write_text(
        "admin_user none\ndefault_domain none\nignore_fqdn false\nspooling_method classic\n"
        "spooling_lib libspoolc\nspooling_params /tmp\nbinary_path /usr/bin\n"
        "qmaster_spool_dir /tmp\nsecurity_mode none\n"
    )
    environment = {
        **os.environ,
        "SGE_ROOT": str(directory / "root"),
        "SGE_CELL": "default",
        "SGE_QMASTER_PORT": "6444",
        "SGE_EXECD_PORT": "6445",
    }
    command = ["qacct", "-f", str(file), *map(str, arguments)]
    return minimum(lambda: cost(command, environment))


def numbers(out: str) -> list[list[str]]:
    """Return the rows of a table without its heads and gaps."""
    rows = [line.split() for line in out.splitlines()]
    return [row for row in rows if row and row[0].startswith("user")]


def show(what: str, found: Cost, records: int, plain: Cost) -> None:
    """Print one row."""
    print(
        f"{what:<42} {found.wall:7.2f} s {found.cpu:7.2f} s {records / found.wall:12,.0f}"
        f" {plain.wall / found.wall:7.1f}x {plain.cpu / found.cpu:7.1f}x {found.memory:6.0f} MiB"
    )


def compare_sums(directory: Path, records: int) -> None:
    """Run all programs for the sums of each owner."""
    file = directory / "accounting"
    write_accounting(file, records)
    plain = minimum(lambda: cost([sys.executable, "-c", PLAIN, str(file), FIELDS]))
    ours = minimum(lambda: cost(ccpipe(file, "--qacct", "--by", "user")))
    in_python = {**os.environ, "CCPIPE_KERNEL": "python"}
    twin = minimum(lambda: cost(ccpipe(file, "--qacct", "--by", "user"), in_python))
    whole = minimum(lambda: cost(ccpipe(file, "--by", "user", "-o", "csv")))
    real = qacct(directory, file, "-o")
    for other in (plain, real, twin):
        if other and numbers(other.out) != numbers(ours.out):
            sys.exit("the sums differ")
    print(f"{records:,} classic records, {file.stat().st_size / 2**20:.0f} MiB: sums by user\n")
    print(f"{'':<42} {'wall':>9} {'CPU':>9} {'records/s':>12} {'faster':>8} {'less CPU':>8}")
    show("plain Python, csv.DictReader", plain, records, plain)
    if real:
        show("qacct 8.1.9", real, records, plain)
    show("ccpipe acct gridengine --qacct", ours, records, plain)
    show("the same, without the compiled kernel", twin, records, plain)
    show("ccpipe acct (waits, outcomes, memory too)", whole, records, plain)
    file.unlink()


def compare_lookup(directory: Path, records: int) -> None:
    """Look up one job in a large file made of the lines of the real one."""
    file = directory / "accounting"
    write_real(file, records)
    job = FIRST_JOB + records // 6
    commands = {
        "qacct 8.1.9": None,
        "ccpipe acct gridengine --qacct": ccpipe(file, "--qacct", "-j", job),
    }
    print(f"\n{records:,} real records, {file.stat().st_size / 2**20:.0f} MiB: one job by number\n")
    found = {}
    for name, command in commands.items():
        ran = minimum(partial(cost, command)) if command else qacct(directory, file, "-j", job)
        if ran:
            found[name] = ran
            print(
                f"{name:<42} {ran.wall:7.2f} s {ran.cpu:7.2f} s {records / ran.wall:12,.0f} lines/s"
                f" {records / ran.cpu:12,.0f} lines/CPU-s {ran.memory:6.0f} MiB"
            )
    real, ours = found.get("qacct 8.1.9"), found["ccpipe acct gridengine --qacct"]
    if real and real.out != ours.out:
        sys.exit("the records differ")
    if real:
        wall, cpu = real.wall / ours.wall, real.cpu / ours.cpu
        print(f"ccpipe reads {wall:.2f} times the lines a second, {cpu:.2f} times a CPU-second")
    file.unlink()


def measure_index(directory: Path, records: int) -> None:
    """Index many records, and look jobs up."""
    file, index = directory / "accounting", directory / "index"
    write_accounting(file, records)
    build = cost(ccpipe("index", file, "--dir", index))
    size = sum(part.stat().st_size for part in index.iterdir())
    dice = random.Random(2)
    jobs = [1000 + dice.randrange(records // 3) for _ in range(5)]
    found = [cost(ccpipe("-j", job, "--index", index, "-o", "csv")) for job in jobs]
    if any(len(one.out.splitlines()) != 4 for one in found):
        sys.exit("a job was not found")
    print(
        f"\nindex of {records:,} records, {file.stat().st_size / 2**20:.0f} MiB:"
        f" {size / 2**20:.0f} MiB, made in {build.wall:.0f} s"
        f" (CPU {build.cpu:.0f} s, {build.memory:.0f} MiB of memory)"
    )
    walls = ", ".join(f"{one.wall:.2f}" for one in found)
    print(f"one job among them: {walls} s; CPU {min(one.cpu for one in found):.2f} s at least")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--lookup", type=int, default=4_000_000, metavar="RECORDS")
    parser.add_argument("--index", type=int, default=0, metavar="RECORDS")
    wanted = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        compare_sums(Path(name), wanted.records)
        compare_lookup(Path(name), wanted.lookup)
        if wanted.index:
            measure_index(Path(name), wanted.index)


if __name__ == "__main__":
    main()
