"""Slurm's jobs as they happen on a real cluster: ``make slurm``.

The events and envelopes of the bridge are compared with what sacct itself reports, over a SIGKILL
of the bridge, a restart of slurmctld and a time without slurmdbd.
"""

import contextlib
import json
import re
import shutil
import signal
import subprocess
import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from ccpipe.formats.sonar import (
    INFINITE,
    UNSET,
    ExtendedUint,
    JobsEnvelope,
    SacctData,
    SlurmJob,
)
from ccpipe.formats.sonar import decode as decode_sonar
from ccpipe.formats.sonar import encode as encode_sonar
from ccpipe.translate.slurm.to_sonar import spec_state
from tests.cli.command import ccpipe
from tests.slurm.cluster import Cluster, seconds

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(600)]


def test_bridge_reports_every_kind_of_job_as_sacct(cluster: Cluster) -> None:
    cluster.start_bridges()
    cluster.wait(lambda: bool(cluster.events("nodestate")))
    jobs = first_jobs(cluster)
    cluster.wait(lambda: jobs["gpu"] in {event["jobId"] for event in cluster.starts()})
    (cluster.directory / "seen").touch()
    cluster.wait(lambda: len(cluster.starts()) >= 5)
    time.sleep(1)
    cluster.end_bridges(signal.SIGKILL)
    disturb(cluster, jobs)
    cluster.start_bridges()
    cluster.wait(lambda: cluster.state(jobs["bare"]) == "COMPLETED")
    cluster.control("stop", "slurmctld")  # jobs end unobserved
    time.sleep(6)
    cluster.control("start", "slurmctld")
    cluster.control("stop", "slurmdbd")
    unaccounted = cluster.submit("-n1", "-J", "unaccounted", wrap="sleep 1")
    cluster.wait(lambda: cluster.state(unaccounted) == "COMPLETED")
    time.sleep(4)
    cluster.control("start", "slurmdbd")
    cluster.run("scancel", str(jobs["held"]))
    cluster.wait(lambda: not cluster.run("squeue", "-h", "-t", "R,PD,S,CG", "-o", "%i"), 150)
    cluster.wait(lambda: len(rows(cluster, "-X")) >= len(jobs) + 5)
    ended = [row for row in rows(cluster, "-X") if row["Start"] not in {"None", "Unknown"}]
    cluster.wait(lambda: len(cluster.stops()) >= len({row["JobIDRaw"] for row in ended}))
    cluster.wait(lambda: {unaccounted} <= final_jobs(cluster))
    time.sleep(4)
    cluster.end_bridges(signal.SIGTERM)

    check_events(cluster, ended)
    check_resources(cluster, jobs)
    check_envelopes(cluster)
    check_nodes(cluster)
    check_sums(cluster)


def test_start_events_have_script_and_description(cluster: Cluster) -> None:
    script = b'#!/bin/sh\n#SBATCH --ntasks=1\n# caf\xc3\xa9 caf\xe9 "a\tb"\nexec sleep 4\n'
    path = cluster.directory / "job.sh"
    path.write_bytes(script)
    cluster.start_bridges()

    def submit(*words: str) -> int:
        options = ("--parsable", "--output", "/dev/null", *words, str(path))
        return int(cluster.run("sbatch", *options).partition(";")[0])

    single, array, het = submit(), submit("--array=0-2"), submit("-n1", ":", "-n1")
    cluster.run("srun", "-n1", "--job-name", "interactive", "sleep", "4")
    cluster.wait(lambda: not cluster.run("squeue", "-h", "-t", "R,PD,CG", "-o", "%i"))

    def own(events: list[dict[str, Any]]) -> dict[int, dict[str, Any]]:
        return {event["jobId"]: event for event in events if event["jobId"] >= single}

    cluster.wait(lambda: len(own(cluster.stops())) == 7)
    cluster.end_bridges(signal.SIGTERM)
    started = own(cluster.starts())
    assert {single, array, het, het + 1} < started.keys()
    for job, start in started.items():
        metadata = start["metaData"]
        assert metadata["slurmInfo"].startswith(f"JobId={job} ")
        is_interactive = metadata["jobName"] == "interactive"
        expected = None if is_interactive else script.decode(errors="replace")
        assert metadata.get("jobScript") == expected
    envelopes = [str(message.value) for message in cluster.messages("envelopes")]
    assert envelopes
    assert not [text for text in envelopes if "#SBATCH" in text or "BatchFlag" in text]


def check_sums(cluster: Cluster) -> None:
    path = cluster.directory / "rows.txt"
    path.write_text(cluster.run("sacct", "-aDP", "-S", "now-1days", "-o", "ALL"))
    shown = ccpipe("acct", "slurm", path, "--by", "state", "-o", "json", "--zone", "UTC")
    assert (shown.code, shown.err) == (0, "")
    found = {row["State"]: row for row in map(json.loads, shown.out.splitlines())}
    # With -X sacct has no CPU time, which is recorded by steps.
    runs = [row for row in rows(cluster) if "." not in row["JobIDRaw"]]
    assert {state: row["Rows"] for state, row in found.items()} == Counter(
        run["State"].split()[0] for run in runs
    )
    for state, row in found.items():
        own = [run for run in runs if run["State"].split()[0] == state]
        for column in ("ElapsedRaw", "CPUTimeRAW"):
            assert row[column] == sum(int(run[column]) for run in own)
        used = sum(seconds(run["TotalCPU"]) for run in own)
        assert row["TotalCPU"] == pytest.approx(used, abs=0.01 * len(own))
    check_reports(cluster, path)
    if shutil.which("seff"):
        check_efficiency(cluster, path)


def test_seff_is_available_for_comparison() -> None:
    """If the archive lacks Slurm's source package, the skip states that seff was not compared."""
    if shutil.which("seff") is None:
        pytest.skip("seff is not to be had here: efficiency was not compared with it")


def check_reports(cluster: Cluster, path: Path) -> None:
    """`ccpipe acct slurm` reports each account's CPU and GPU time as sreport, in both its units.

    slurmdbd sums up hours once they are over, or on request. sreport reports nothing after the
    nearest full hour, but its clock can be set.
    """
    shown = ccpipe("acct", "slurm", path, "--by", "account", "-o", "json", "--zone", "UTC")
    found = {row["Account"]: row for row in map(json.loads, shown.out.splitlines())}
    used = {name: row["CPUTimeRAW"] for name, row in found.items() if name and row["CPUTimeRAW"]}
    gpus = {name: row["GPUTime"] for name, row in found.items() if name and row["GPUTime"]}
    hour = datetime.now(UTC).replace(minute=0, second=0, microsecond=0, tzinfo=None)
    begin, end = ((hour + timedelta(hours=hours)).isoformat() for hours in (-2, 2))
    (library,) = Path("/usr/lib").glob("*/faketime/libfaketime.so.1")
    sreport = (
        "env", f"LD_PRELOAD={library}", "FAKETIME=+1h", "sreport", "-nP", "-t", "Seconds",
    )  # fmt: skip
    times = (f"start={begin}", f"end={end}")
    report = cluster.run(*sreport, "job", "SizesByAccount", "FlatView", *times)
    sizes = [line.split("|") for line in report.splitlines()]
    assert {account: sum(map(int, by_size)) for _, account, *by_size, _ in sizes} == used, report
    cluster.run("sacctmgr", "--immediate", "rollup", begin, end)
    more = ("-T", "cpu,gres/gpu", "cluster", "AccountUtilizationByUser")
    report = cluster.run(*sreport, *more, *times)
    sums: dict[str, dict[str, int]] = {"cpu": {}, "gres/gpu": {}}
    for line in report.splitlines():
        _, account, login, _, tres, seconds_ = line.split("|")
        if login and int(seconds_):
            sums[tres][account] = sums[tres].get(account, 0) + int(seconds_)
    assert sums == {"cpu": used, "gres/gpu": gpus}, report


def check_efficiency(cluster: Cluster, path: Path) -> None:
    """`ccpipe acct slurm` reports the same efficiency of each job as seff.

    seff rounds CPU time to whole seconds. It uses the largest task's memory for all tasks, which
    is correct for steps of one task.
    """
    shown = ccpipe("acct", "slurm", path, "--list", "-o", "json", "--zone", "UTC")
    states = {"COMPLETED", "FAILED"}
    found = {
        str(row["JobIDRaw"]): row
        for row in map(json.loads, shown.out.splitlines())
        if row["State"] in states
    }
    ended = [row for row in rows(cluster, "-X") if row["State"] in states]
    assert len(ended) > len({"failed", "steps", "gpu", "array", "het"})
    for job in (row["JobIDRaw"] for row in ended):
        said = dict(
            line.split(": ", 1) for line in cluster.run("seff", job).splitlines() if ": " in line
        )
        ours = found[job]
        share, _, total = said["CPU Efficiency"].partition("% of ")
        assert seconds(total.split()[0]) == ours["CPUTimeRAW"]
        assert seconds(said["CPU Utilized"]) == pytest.approx(ours["TotalCPU"], abs=0.51)
        assert float(share) == pytest.approx(
            100 * (ours["Efficiency"] or 0), abs=51 / max(ours["CPUTimeRAW"], 1)
        )  # seff reports 0 for jobs shorter than a second
        memory, unit, *_ = said["Memory Utilized"].split()
        bytes_ = float(memory) * 1024 ** " KMG".index(unit[0])
        assert bytes_ == pytest.approx(ours["Memory"] or 0, rel=0.01), (said, ours)


def first_jobs(cluster: Cluster) -> dict[str, int]:
    submit = cluster.submit
    until_seen = f"until [ -e {cluster.directory}/seen ]; do sleep 0.2; done"
    jobs = {
        "timeout": submit("-n1", "--time=1", "-w", "c2", wrap="sleep 300"),
        # It waits: after a job's end its GPUs are unknown.
        "gpu": submit("-p", "accel", "--gres=gpu:1", "-n2", wrap=until_seen),
        "array": submit("--array=0-4%2", "-n1", wrap="sleep 2"),
        "het": submit("-n1", ":", "-n1", wrap="sleep 4"),
        "held": submit("-H", "-n1"),
        "failed": submit("-n1", "-J", "a|b\nc\x07ü", wrap="exit 3"),
        "signal": submit("-n1", wrap="kill -SEGV $$"),
        "exclusive": submit("-p", "exclusive", "-N1", wrap="srun sleep 2"),
        "nobody": submit("-n1", "--uid=nobody", wrap="sleep 2"),
        "steps": submit("-n1", wrap="srun sleep 1; srun head -c 200000000 /dev/zero >/dev/null"),
    }
    cluster.wait(lambda: cluster.state(jobs["timeout"]) == "RUNNING")
    return jobs


def disturb(cluster: Cluster, jobs: dict[str, int]) -> None:
    submit = cluster.submit

    def wait_until_running(*names: str) -> None:
        for name in names:
            cluster.wait_for_state(jobs[name], "RUNNING")

    jobs["bare"] = submit("-n1", wrap="true")
    jobs["suspended"] = submit("-n1", "-w", "c1", wrap="sleep 8")
    jobs["cancelled"] = submit("-n1", "-w", "c1", wrap="sleep 300")
    jobs["requeued"] = submit("-n1", "-w", "c1", "--requeue", wrap="sleep 7")
    jobs["preempted"] = submit("-n4", "-w", "c3", "--no-requeue", wrap="sleep 300")
    wait_until_running("suspended", "cancelled", "requeued", "preempted")
    cluster.run("scontrol", "suspend", str(jobs["suspended"]))
    cluster.run("scancel", str(jobs["cancelled"]))
    time.sleep(1)
    cluster.run("scontrol", "requeue", str(jobs["requeued"]))
    jobs["urgent"] = submit("-n4", "-p", "urgent", wrap="sleep 1")
    cluster.wait(lambda: cluster.state(jobs["urgent"]) == "COMPLETED")
    cluster.run("scontrol", "resume", str(jobs["suspended"]))
    jobs["lost"] = submit("-n1", "-w", "c3", "--no-requeue", wrap="sleep 300")
    wait_until_running("lost")
    cluster.run("scontrol", "update", "nodename=c3", "state=down", "reason=test")
    with contextlib.suppress(subprocess.CalledProcessError):  # it is up again already
        cluster.run("scontrol", "update", "nodename=c3", "state=resume")
    cluster.wait(lambda: "down" not in cluster.run("sinfo", "-hn", "c3", "-o", "%T"))


COLUMNS = (
    "JobIDRaw", "JobID", "JobName", "State", "User", "Account", "Partition", "Reservation",
    "Submit", "Start", "End", "Suspended", "ElapsedRaw", "TimelimitRaw", "Priority", "Layout",
    "NodeList", "ReqCPUS", "ReqNodes", "ReqMem", "ReqTRES", "AllocTRES", "ExitCode", "MinCPU",
    "AveCPU", "UserCPU", "SystemCPU", "AveDiskRead", "AveDiskWrite", "TRESUsageInAve",
    "TRESUsageOutAve", "AveRSS", "AveVMSize", "MaxRSS", "MaxVMSize", "CPUTimeRAW", "TotalCPU",
    "DBIndex",
)  # fmt: skip
"""The last one is a number, which ends a row even if a name contains a newline."""


def rows(cluster: Cluster, *options: str) -> list[dict[str, str]]:
    """Return sacct's rows as dictionaries, read in another way than the source's."""
    output = cluster.run(
        "env", "SLURM_TIME_FORMAT=%s", "sacct", "-aDnP", "--noconvert", *options,
        "-o", ",".join(COLUMNS), "-S", "now-1hour", "-E", "now+1hour", "--delimiter", "\x1f",
    )  # fmt: skip
    cells = re.sub(r"\x1f(\d*)\n", "\x1f\\1\x1f", output).split("\x1f")[:-1]
    parts = (cells[at : at + len(COLUMNS)] for at in range(0, len(cells), len(COLUMNS)))
    return [dict(zip(COLUMNS, part, strict=True)) for part in parts]


def records(cluster: Cluster) -> list[SlurmJob]:
    """Return all job records of the envelopes, in their order; all conform to the specification.

    Slurm's states are mapped to the eight of ``states = "spec"`` for this.
    """
    found: list[SlurmJob] = []
    for message in cluster.messages("envelopes"):
        if message.name == "sonar" and message.tags.get("function") == "job":
            (envelope,) = decode_sonar(str(message.value).encode())
            assert isinstance(envelope, JobsEnvelope)
            assert envelope.data is not None
            jobs = envelope.data.attributes.slurm_jobs
            found += jobs
            attributes = replace(envelope.data.attributes, slurm_jobs=tuple(map(spec_state, jobs)))
            data = replace(envelope.data, attributes=attributes)
            strict = decode_sonar(encode_sonar(replace(envelope, data=data)), strict=True)
            assert strict.rejected == []
    return found


def final_jobs(cluster: Cluster) -> set[int]:
    return {job.job_id for job in records(cluster) if job.sacct and job.end_time}


def check_events(cluster: Cluster, ended: list[dict[str, str]]) -> None:
    first: dict[str, dict[str, str]] = {}
    last: dict[str, dict[str, str]] = {}
    for row in sorted(ended, key=lambda row: int(row["Start"])):
        first.setdefault(row["JobIDRaw"], row)
        last[row["JobIDRaw"]] = row
    assert len(last) < len(ended)
    expected = Counter(
        (int(job), int(first[job]["Start"]), int(row["End"]), state_of(row))
        for job, row in last.items()
    )
    assert Counter(map(run_of, cluster.stops())) == expected
    assert Counter((e["jobId"], e["startTime"]) for e in cluster.starts()) == Counter(
        run[:2] for run in expected
    )
    assert {state for *_, state in expected} >= {
        "completed", "failed", "timeout", "cancelled", "node_fail", "preempted",
    }  # fmt: skip
    open_runs: set[tuple[int, int]] = set()
    for event in cluster.events("job"):
        run = event["jobId"], event["startTime"]
        assert (run in open_runs) == (event["function"] == "stop_job")
        open_runs ^= {run}
    assert not open_runs


def run_of(stop: dict[str, Any]) -> tuple[int, int, int, str]:
    return stop["jobId"], stop["startTime"], stop["stopTime"], stop["jobState"]


def state_of(row: dict[str, str]) -> str:
    return row["State"].partition(" ")[0].lower()


def check_resources(cluster: Cluster, jobs: dict[str, int]) -> None:
    by_job = {event["jobId"]: event for event in cluster.starts()}
    gpu = by_job[jobs["gpu"]]
    assert gpu["resources"] == [
        {"hostname": "gpu-1", "hwthreads": [0, 1], "accelerators": ["0000:49:00.0"]}
    ]
    assert (gpu["numAcc"], gpu["numHwthreads"], gpu["shared"]) == (1, 2, "multi_user")
    assert "shared" not in by_job[jobs["exclusive"]]
    assert by_job[jobs["nobody"]]["user"] == "nobody"
    assert by_job[jobs["timeout"]]["walltime"] == 60
    assert by_job[jobs["array"]]["arrayJobId"] == jobs["array"]
    assert by_job[jobs["het"] + 1]["metaData"]["hetJobOffset"] == "1"
    # slurmdbd names a job "allocation" while it knows only its end.
    assert by_job[jobs["failed"]]["metaData"]["jobName"].startswith("a|b")


def check_envelopes(cluster: Cluster) -> None:
    latest = {
        (job.job_id, job.job_step, job.start_time, job.end_time): job
        for job in records(cluster)
        if job.sacct is not None
    }
    by_run = {(key[0], key[1], epoch(key[2]), epoch(key[3])): job for key, job in latest.items()}
    for row in rows(cluster):
        number, _, step = row["JobIDRaw"].partition(".")
        start = "" if row["Start"] in {"None", "Unknown"} else row["Start"]
        job = by_run[int(number), step, start, row["End"]]
        assert msgspec.structs.asdict(job) | {"gres_detail": ()} == expected_job(row), row
        has_detail = any(text.startswith("Nodes=") for text in job.gres_detail)
        assert not (has_detail and step)


def expected_job(row: dict[str, str]) -> dict[str, Any]:
    """Return each field of a record, of sacct's own row; only scontrol has ``gres_detail``."""
    number, _, step = row["JobIDRaw"].partition(".")
    first, array, task, offset = re.match(r"(\d+)(?:(_)(\d*)|\+(\d+))?", row["JobID"]).groups()  # type: ignore[union-attr]
    code, signal_ = map(int, (row["ExitCode"] or "0:0").split(":"))
    limit = row["TimelimitRaw"]
    memory = 0 if row["ReqMem"].startswith("18446744") else amount(row["ReqMem"], 2**20)
    return {
        "job_id": int(number),
        "job_step": step,
        "job_name": row["JobName"],
        "job_state": row["State"].partition(" ")[0],
        "array_job_id": int(first) if array else 0,
        "array_task_id": int(task or 0),
        "het_job_id": int(first) if offset else 0,
        "het_job_offset": int(offset or 0),
        "user_name": row["User"],
        "account": row["Account"],
        "submit_time": time_of(row["Submit"]),
        "time_limit": ExtendedUint(int(limit)) if limit.isdigit()
        else INFINITE if limit == "UNLIMITED" else UNSET,
        "partition": row["Partition"],
        "reservation": row["Reservation"],
        "nodes": tuple(re.findall(r"(?:[^,[]|\[[^]]*\])+", row["NodeList"]))
        if row["NodeList"] != "None assigned" else (),
        "priority": ExtendedUint(int(row["Priority"])) if row["Priority"] else UNSET,
        "distribution": row["Layout"].replace("Unknown", ""),
        "gres_detail": (),
        "requested_cpus": int(row["ReqCPUS"] or 0),
        "minimum_cpus_per_node": 0,
        "requested_memory_per_node": kib(memory // max(int(row["ReqNodes"] or 1), 1)),
        "requested_node_count": int(row["ReqNodes"] or 0),
        "start_time": time_of(row["Start"]),
        "suspend_time": int(seconds(row["Suspended"])),
        "end_time": time_of(row["End"]),
        "exit_code": 128 + signal_ if signal_ else code,
        "requested_resources": row["ReqTRES"],
        "allocated_resources": row["AllocTRES"],
        "sacct": SacctData(
            MinCPU=int(seconds(row["MinCPU"])),
            AllocTRES=row["AllocTRES"],
            AveCPU=int(seconds(row["AveCPU"])),
            AveDiskRead=kib(disk(row["TRESUsageInAve"], row["AveDiskRead"])),
            AveDiskWrite=kib(disk(row["TRESUsageOutAve"], row["AveDiskWrite"])),
            AveRSS=kib(amount(row["AveRSS"])),
            AveVMSize=kib(amount(row["AveVMSize"])),
            ElapsedRaw=int(row["ElapsedRaw"]),
            SystemCPU=round(seconds(row["SystemCPU"])),
            UserCPU=round(seconds(row["UserCPU"])),
            MaxRSS=kib(amount(row["MaxRSS"])),
            MaxVMSize=kib(amount(row["MaxVMSize"])),
        ),
    }  # fmt: skip


def time_of(text: str) -> str:
    if not text.isdigit():
        return ""
    return datetime.fromtimestamp(int(text), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def amount(text: str, unit: int = 1) -> int:
    power = " KMG".find(text[-1:]) if text[-1:].isalpha() else 0
    return round(float(text.rstrip("KMG") or 0) * (1024**power if power else unit))


def disk(usage: str, rounded: str) -> int:
    exact = re.search(r"fs/disk=(\d+)", usage)
    return int(exact[1]) if exact else amount(rounded)


def kib(number: int) -> int:
    return -(-number // 1024)


def epoch(text: str) -> str:
    return "" if not text else str(int(datetime.fromisoformat(text).timestamp()))


def check_nodes(cluster: Cluster) -> None:
    gpu_node = [
        {key: value for key, value in node.items() if key not in {"hostname", "states"}}
        for event in cluster.events("nodestate")
        for node in event["nodes"]
        if node["hostname"] == "gpu-1"
    ]
    used = {"cpusAllocated": 2, "memoryAllocated": 200, "gpusAllocated": 1, "jobsRunning": 1}
    assert used in gpu_node
    assert dict.fromkeys(used, 0) in gpu_node
    states = [
        (node["hostname"], state)
        for event in cluster.events("nodestate")
        for node in event["nodes"]
        for state in node["states"]
    ]
    assert {name for name, _ in states} == {"c1", "c2", "c3", "c4", "gpu-1"}
    assert ("gpu-1", "mixed") in states
    assert ("gpu-1", "idle") in states


def test_reason_of_drained_node_is_reported(cluster: Cluster) -> None:
    """As an administrator wrote it, bars included."""
    reason = "bad DIMM | slot 3"
    wanted = {"hostname": "c3", "reason": reason}
    cluster.start_bridges()
    cluster.run("scontrol", "update", "nodename=c3", "state=drain", f"reason={reason}")
    try:
        cluster.wait(
            lambda: any(wanted in event["nodes"] for event in cluster.events("nodereason"))
        )
        [row] = [row for row in cluster.events("nodestate")[-1]["nodes"] if row["hostname"] == "c3"]
        assert "drain" in row["states"]
    finally:
        cluster.end_bridges(signal.SIGKILL)
        cluster.run("scontrol", "update", "nodename=c3", "state=resume")
