"""Jobs that Slurm runs again, on a real cluster whose epilog takes its time: ``make slurm``."""

import contextlib
import signal
import subprocess

import pytest

from tests.paths import ROOT
from tests.slurm.cluster import Cluster

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(600)]

EPILOG = (f"Epilog={ROOT}/tests/slurm/epilog.sh",)


@pytest.mark.parametrize("cluster", [EPILOG], indirect=True)
def test_requeued_jobs_start_once_and_stop_at_their_real_end(cluster: Cluster) -> None:
    """By hand, by preemption, with a lost node, and cancelled while waiting: as sacct has it.

    During the epilog of the previous run, squeue reports a start that never happened.
    """
    jobs = {
        "requeued": cluster.submit("-n1", "-w", "c1", "--requeue", wrap="sleep 12"),
        "cancelled": cluster.submit("-n1", "-w", "c1", "--requeue", wrap="sleep 300"),
        "lost": cluster.submit("-n1", "-w", "c2", "--requeue", wrap="sleep 12"),
        "preempted": cluster.submit("-n4", "-w", "c3", "--requeue", wrap="sleep 12"),
    }
    cluster.start_bridges()
    cluster.wait(lambda: {*jobs.values()} <= {start["jobId"] for start in cluster.starts()})
    for name in ("requeued", "cancelled"):
        cluster.run("scontrol", "requeue", str(jobs[name]))
    cluster.submit("-n4", "-p", "urgent", wrap="sleep 1")
    cluster.run("scontrol", "update", "nodename=c2", "state=down", "reason=test")
    for name, job in jobs.items():
        cluster.wait_for_state(job, "PENDING")  # its epilog is over then
        if name == "cancelled":
            cluster.run("scancel", str(job))
        else:  # Slurm itself would let it wait for two minutes
            cluster.run("scontrol", "update", f"jobid={job}", "starttime=now")
    with contextlib.suppress(subprocess.CalledProcessError):  # it is up again already
        cluster.run("scontrol", "update", "nodename=c2", "state=resume")
    cluster.wait(lambda: len(cluster.stops()) >= len(jobs) + 1, 200)
    cluster.end_bridges(signal.SIGTERM)

    for name, job in jobs.items():
        events = [event for event in cluster.events("job") if event["jobId"] == job]
        assert [event["function"] for event in events] == ["start_job", "stop_job"], name
        runs = runs_of(cluster, job)
        assert len(runs) >= 2, name
        start, stop = events
        assert start["startTime"] == stop["startTime"] == int(runs[0]["Start"]), name
        last = runs[-2] if name == "cancelled" else runs[-1]  # it never ran again
        assert stop["stopTime"] == int(last["End"]), name
        assert stop["jobState"] == ("cancelled" if name == "cancelled" else "completed"), name


def runs_of(cluster: Cluster, job: int) -> list[dict[str, str]]:
    columns = ("Submit", "Start", "End", "State")
    output = cluster.run(
        "env", "SLURM_TIME_FORMAT=%s", "sacct", "-XDnP", "-j", str(job), "-o", ",".join(columns)
    )
    rows = [dict(zip(columns, line.split("|"), strict=True)) for line in output.splitlines()]
    return sorted(rows, key=lambda row: int(row["Submit"]))
