"""Pending jobs of a real Slurm, from their submission until they start or are cancelled."""

import signal
from collections.abc import Iterator
from typing import Any

import pytest

from tests.slurm.cluster import Cluster

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(600)]


def reported(cluster: Cluster, job: int) -> list[dict[str, Any]]:
    """Return all that events reported of a job while it was pending."""
    return [
        {**row, "user": event["user"]}
        for event in cluster.events("jobpending")
        for row in event.get("pending", [])
        if row["jobId"] == job
    ]


def left(cluster: Cluster, job: int) -> list[str]:
    """Return the state of a job each time that it left the queue."""
    return [
        row.get("jobState", "")
        for event in cluster.events("jobpending")
        for row in event.get("left", [])
        if row["jobId"] == job
    ]


@pytest.fixture
def bridges(cluster: Cluster) -> Iterator[Cluster]:
    """A cluster with bridges, and without jobs afterwards."""
    cluster.start_bridges()
    try:
        yield cluster
    finally:
        cluster.end_bridges(signal.SIGKILL)
        cluster.run("scancel", "--user", "root")


def test_job_is_pending_until_it_starts_or_is_cancelled(bridges: Cluster) -> None:
    """With Slurm's reason, over a SIGKILL of the bridge, which repeats nothing."""
    cluster, free, done = bridges, bridges.directory / "free", bridges.directory / "done"
    on_c1 = ("-n4", "-w", "c1")
    running = cluster.submit(*on_c1, wrap=f"until [ -e {free} ]; do sleep 0.2; done")
    cluster.wait_for_state(running, "RUNNING")
    waiting = cluster.submit(*on_c1, "--time=2", "-J", "later",
                             wrap=f"until [ -e {done} ]; do sleep 0.2; done")  # fmt: skip
    array = cluster.submit(*on_c1, "--array=0-2%2", wrap="sleep 1")
    cancelled, held = cluster.submit(*on_c1), cluster.submit("-n1", "-H")
    reasons = {"Resources", "Priority"}
    cluster.wait(lambda: any(row.get("reason") in reasons for row in reported(cluster, waiting)))
    [row] = cluster.run("squeue", "-h", "-j", str(waiting), "-o", "%r|%u|%a|%P|%D|%C").splitlines()
    reason, user, account, partition, nodes, cpus = row.split("|")
    assert reason in reasons
    found = reported(cluster, waiting)[-1]
    assert (found["user"], found["project"], found["partition"]) == (user, account, partition)
    assert (found["jobName"], found["walltime"]) == ("later", 120)
    assert (found["numNodes"], found["numHwthreads"]) == (int(nodes), int(cpus))
    cluster.wait(lambda: bool(reported(cluster, array) and reported(cluster, cancelled)))
    assert reported(cluster, array)[-1]["arrayTasks"] == 3
    cluster.wait(lambda: [row["reason"] for row in reported(cluster, held)] == ["JobHeldUser"])

    polls = len(cluster.events("nodestate"))  # until the reports of a poll are known to be stored
    cluster.wait(lambda: len(cluster.events("nodestate")) >= polls + 2)
    cluster.end_bridges(signal.SIGKILL)
    cluster.run("scancel", str(cancelled))
    cluster.start_bridges()
    cluster.wait(lambda: left(cluster, cancelled) == ["cancelled"])
    free.touch()
    cluster.wait(lambda: left(cluster, waiting) == ["running"])
    assert waiting in {event["jobId"] for event in cluster.starts()}
    done.touch()
    cluster.wait(lambda: left(cluster, array) != [])
    cluster.run("scancel", str(held))
    cluster.wait(lambda: left(cluster, held) == ["cancelled"])
    assert [row["reason"] for row in reported(cluster, held)] == ["JobHeldUser"]
    assert len(left(cluster, waiting)) == 1
    assert left(cluster, running) in ([], ["running"])
    assert {event["jobId"] for event in cluster.stops()}.isdisjoint({cancelled, held})
