"""Speed of reading sacct's rows: rows per CPU-second, compared with ``csv.DictReader`` in one run.

    python -m benchmarks.slurm.sacct [rows]

The rows are real ones, multiplied as a busy site would have them: each job has its own number,
times, CPU times and volumes, and its user, account, name and node of many. They are also read by
``csv.DictReader``, whose cells are read into the same Structs by the same rules.
"""

import csv
import io
import random
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

from ccpipe.formats.slurm.records import SacctRow, SlurmId
from ccpipe.formats.slurm.text import SacctReader
from ccpipe.formats.sonar import INFINITE, UNSET, ExtendedUint, SacctData, SlurmJob
from ccpipe.translate.slurm.to_sonar import job_of_row

DATA = Path(__file__).parents[2] / "tests" / "data" / "slurm" / "sacct"
ZONE = ZoneInfo("Europe/Oslo")
WEEK = 7 * 86400
TIMES = ("Submit", "Start", "End")
CPU_TIMES = ("SystemCPU", "UserCPU")
VOLUMES = ("AveRSS", "AveVMSize", "MaxRSS", "MaxVMSize")


def sample(count: int) -> bytes:
    """Make so many rows after a line of names, always the same."""
    chance = random.Random(13)
    header, *lines = (DATA / "phase1_linux.sonar_fields.txt").read_text().splitlines()
    names = header.split("|")
    jobs: dict[str, list[list[str]]] = {}
    for line in lines:
        cells = line.split("|")
        jobs.setdefault(cells[0].partition(".")[0], []).append(cells)
    made = [header]
    for number in range(100_000, 100_000 + count):
        job = jobs[chance.choice(list(jobs))]
        made += varied_job(job, names, str(number), chance)
        if len(made) > count:
            break
    return ("\n".join(made[: count + 1]) + "\n").encode()


def varied_job(
    rows: list[list[str]], names: list[str], number: str, chance: random.Random
) -> list[str]:
    """Write a job's rows with a number, times and amounts of its own."""
    shift = timedelta(seconds=chance.randrange(WEEK))
    person, name, node = chance.randrange(300), chance.randrange(2000), chance.randrange(500)
    found = []
    for cells in rows:
        row = dict(zip(names, cells, strict=True))
        step = row["JobIDRaw"].partition(".")
        row["JobID"] = row["JobIDRaw"] = number + step[1] + step[2]
        row["JobName"] = row["JobName"] if step[2] else f"job-{name}"
        row["Account"] = f"project{person % 60}"
        row["User"] = row["User"] and f"user{person}"
        row["NodeList"] = row["NodeList"].replace("c", f"n{node}-")
        row["AllocTRES"] = row["AllocTRES"].replace("energy=", f"energy={chance.randrange(10**4)}")
        for column in TIMES:
            if row[column][:1].isdigit():
                moved = datetime.fromisoformat(row[column]).replace(tzinfo=UTC) + shift
                row[column] = moved.strftime("%Y-%m-%dT%H:%M:%S")
        for column in CPU_TIMES:
            if "." in row[column]:
                row[column] = f"{chance.randrange(60):02}:{chance.uniform(0, 60):06.3f}"
        for column in VOLUMES:
            if row[column]:
                row[column] = f"{chance.randrange(10**4, 10**7)}K"
        found.append("|".join(row.values()))
    return found


def dict_reader(payload: bytes) -> Iterable[object]:
    """Read into dicts of texts, and no further; keep none."""
    return csv.DictReader(io.StringIO(payload.decode()), delimiter="|", quoting=csv.QUOTE_NONE)


def dict_reader_to_rows(payload: bytes) -> list[SacctRow]:
    """Read into dicts, and each cell into a field of ``SacctRow``, as a script does."""
    reader = csv.DictReader(io.StringIO(payload.decode()), delimiter="|", quoting=csv.QUOTE_NONE)
    return [row_of(row) for row in reader]


def row_of(row: dict[str, str]) -> SacctRow:
    """Make one record of one dict."""
    job, _, step = row["JobIDRaw"].partition(".")
    state, _, by = row["State"].partition(" by ")
    code, _, signal = row["ExitCode"].partition(":")
    return SacctRow(
        SlurmId(int(job), step),
        job_name=row["JobName"] or None,
        user=row["User"] or None,
        account=row["Account"] or None,
        state=state or None,
        submit=nanoseconds(row["Submit"]),
        start=nanoseconds(row["Start"]),
        end=nanoseconds(row["End"]),
        time_limit=limit(row["TimelimitRaw"]),
        partition=row["Partition"] or None,
        reservation=row["Reservation"] or None,
        node_list=None if row["NodeList"] == "None assigned" else row["NodeList"] or None,
        priority=number(row["Priority"]),
        layout=None if row["Layout"] == "Unknown" else row["Layout"] or None,
        req_cpus=number(row["ReqCPUS"]),
        req_mem=size(row["ReqMem"]),
        req_mem_of="job" if row["ReqMem"] else None,
        req_nodes=number(row["ReqNodes"]),
        suspended=seconds(row["Suspended"]),
        exit_code=number(code),
        exit_signal=number(signal),
        min_cpu=seconds(row["MinCPU"]),
        alloc_tres=row["AllocTRES"] or None,
        ave_cpu=seconds(row["AveCPU"]),
        ave_disk_read=size(row["AveDiskRead"]),
        ave_disk_write=size(row["AveDiskWrite"]),
        ave_rss=size(row["AveRSS"]),
        ave_vm_size=size(row["AveVMSize"]),
        elapsed=number(row["ElapsedRaw"]),
        system_cpu=seconds(row["SystemCPU"]),
        user_cpu=seconds(row["UserCPU"]),
        max_rss=size(row["MaxRSS"]),
        max_vm_size=size(row["MaxVMSize"]),
        cancelled_by=number(by),
    )


def number(text: str) -> int | None:
    """Read a whole number."""
    return int(text) if text else None


def limit(text: str) -> float | None:
    """Read minutes into seconds."""
    if text == "UNLIMITED":
        return float("inf")
    return int(text) * 60 if text.isdigit() else None


def nanoseconds(text: str) -> int | None:
    """Read a local time."""
    if text in ("", "Unknown", "None"):
        return None
    return int(datetime.fromisoformat(text).replace(tzinfo=ZONE).timestamp()) * 10**9


def seconds(text: str) -> float | None:
    """Read ``days-hours:minutes:seconds`` with or without a fraction."""
    if not text:
        return None
    days, _, clock = text.rpartition("-")
    total = float(days or 0) * 24
    for part in clock.split(":"):
        total = total * 60 + float(part)
    return round(total, 3)


def size(text: str) -> int | None:
    """Read ``93585K`` into bytes."""
    if not text:
        return None
    power = "KMGTP".find(text[-1]) + 1
    return round(float(text[:-1] if power else text) * 1024.0**power)


def read(payload: bytes) -> list[SacctRow]:
    """Read all at once into ``SacctRow``."""
    return SacctReader(zone=ZONE).read(payload).records


def read_stream(payload: bytes) -> Iterator[SacctRow]:
    """Read in chunks into ``SacctRow``, and keep none."""
    for reading in SacctReader(zone=ZONE).read_stream(io.BytesIO(payload)):
        yield from reading.records


def dict_reader_to_jobs(payload: bytes) -> list[SlurmJob]:
    """Read into dicts, and each cell into a field of the envelope's record, as a script does."""
    reader = csv.DictReader(io.StringIO(payload.decode()), delimiter="|", quoting=csv.QUOTE_NONE)
    return [job_of(row) for row in reader]


def job_of(row: dict[str, str]) -> SlurmJob:
    """Make one record of an envelope of one dict; all these rows have ended."""
    job, _, step = row["JobIDRaw"].partition(".")
    code, _, signal = row["ExitCode"].partition(":")
    memory = size(row["ReqMem"]) or 0
    nodes = row["NodeList"]
    return SlurmJob(
        job_id=int(job),
        job_step=step,
        job_name=row["JobName"],
        job_state=row["State"].partition(" by ")[0],
        user_name=row["User"],
        account=row["Account"],
        submit_time=moment(row["Submit"]),
        time_limit=extended(row["TimelimitRaw"]),
        partition=row["Partition"],
        reservation=row["Reservation"],
        nodes=() if nodes in ("", "None assigned") else tuple(NODES.findall(nodes)),
        priority=extended(row["Priority"]),
        distribution="" if row["Layout"] == "Unknown" else row["Layout"],
        requested_cpus=int(row["ReqCPUS"] or 0),
        requested_memory_per_node=kib(memory // max(int(row["ReqNodes"] or 1), 1)),
        requested_node_count=int(row["ReqNodes"] or 0),
        start_time=moment(row["Start"]),
        suspend_time=int(seconds(row["Suspended"]) or 0),
        end_time=moment(row["End"]),
        exit_code=128 + int(signal) if int(signal or 0) else int(code or 0),
        sacct=SacctData(
            MinCPU=int(seconds(row["MinCPU"]) or 0),
            AllocTRES=row["AllocTRES"],
            AveCPU=int(seconds(row["AveCPU"]) or 0),
            AveDiskRead=kib(size(row["AveDiskRead"])),
            AveDiskWrite=kib(size(row["AveDiskWrite"])),
            AveRSS=kib(size(row["AveRSS"])),
            AveVMSize=kib(size(row["AveVMSize"])),
            ElapsedRaw=int(row["ElapsedRaw"]),
            SystemCPU=round(seconds(row["SystemCPU"]) or 0),
            UserCPU=round(seconds(row["UserCPU"]) or 0),
            MaxRSS=kib(size(row["MaxRSS"])),
            MaxVMSize=kib(size(row["MaxVMSize"])),
        ),
        allocated_resources=row["AllocTRES"],
    )


NODES = re.compile(r"(?:[^,[]|\[[^]]*\])+")


def moment(text: str) -> str:
    """Write a local time in UTC."""
    if text in ("", "Unknown", "None"):
        return ""
    utc = datetime.fromisoformat(text).replace(tzinfo=ZONE).astimezone(UTC)
    return utc.strftime("%Y-%m-%dT%H:%M:%SZ")


def extended(text: str) -> ExtendedUint:
    """Read a number that may be missing."""
    if text == "UNLIMITED":
        return INFINITE
    return ExtendedUint(int(text)) if text.isdigit() else UNSET


def kib(amount: int | None) -> int:
    """Round bytes up to KiB."""
    return -(-(amount or 0) // 1024)


def to_jobs(payload: bytes) -> Iterator[SlurmJob]:
    """Read in chunks into the records of envelopes."""
    for reading in SacctReader(zone=ZONE).read_stream(io.BytesIO(payload)):
        yield from map(job_of_row, reading.records)


def compare(payload: bytes, *works: Callable[[bytes], Iterable[object]], rounds: int = 5) -> None:
    """Print the speed of each, and its ratio to the first: the best of a few alternating rounds."""
    best = dict.fromkeys(works, float("inf"))
    count = payload.count(b"\n") - 1
    for _ in range(rounds):
        for work in works:
            before = time.process_time()
            assert sum(1 for _ in work(payload)) == count
            best[work] = min(best[work], time.process_time() - before)
    for work, seconds_taken in best.items():
        ratio = best[works[0]] / seconds_taken
        print(f"{work.__name__:20} {count / seconds_taken:10,.0f} rows/CPU-s {ratio:6.2f}x")


def main() -> None:
    """Check that all read the same, and print a table."""
    payload = sample(int(sys.argv[1]) if len(sys.argv) > 1 else 100_000)
    rows = read(payload)
    assert rows == dict_reader_to_rows(payload) == list(read_stream(payload))
    assert dict_reader_to_jobs(payload) == list(to_jobs(payload))
    print(f"{len(rows)} rows, {len(payload) / 1e6:.1f} MB")
    compare(payload, dict_reader_to_rows, dict_reader, read, read_stream)
    compare(payload, dict_reader_to_jobs, to_jobs)


if __name__ == "__main__":
    main()
