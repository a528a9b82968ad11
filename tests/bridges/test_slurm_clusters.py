"""One process of ``ccpipe bridge`` for several clusters of Slurm."""

import asyncio
import json
import re
import signal
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from ccpipe.bus.nats.server import NatsServer
from ccpipe.bus.nats.source import NatsSource
from ccpipe.config import Bus, Site
from ccpipe.process.background import end_tasks
from ccpipe.telemetry import Telemetry
from tests.bridges.recipes import changed
from tests.cli import command
from tests.conftest import eventually
from tests.sources.slurm.programs import NAMES, Programs, sacct_row, squeue_job

STARTS = {"fritz": "2026-11-20T10:01:00", "alex": "2026-11-20T10:02:00"}
END = "2026-11-20T10:05:00"
NODES = {"fritz": "f0101", "alex": "a0101"}

Events = dict[str, list[dict[str, Any]]]
"""The events of jobs that each cluster's subjects have, in order."""


def recipe_of(cluster: str, programs: Programs, directory: Path) -> Path:
    """Write a recipe as an administrator does, with its own names, configuration and state."""
    own = directory / cluster
    own.mkdir()
    conf = own / "slurm.conf"
    conf.touch()
    source = (
        f'use = "slurm"\nslurm_conf = "{conf}"\nbin_dir = "{programs.directory}"\n'
        'poll_interval = "100ms"\n#'
    )
    written = changed("slurm-jobs.toml", own, {'use = "slurm"': source})
    path = directory / f"{cluster}.toml"
    path.write_text(f'cluster = "{cluster}"\n' + written.read_text())
    return path


@asynccontextmanager
async def collecting(server: NatsServer) -> AsyncIterator[Events]:
    """Collect the events of both clusters' subjects while the bridge starts and ends."""
    found: Events = {cluster: [] for cluster in STARTS}

    async def follow(cluster: str) -> None:
        site = Site(cluster=cluster, hostname="n1", bus=Bus(servers=[server.url]))
        source = NatsSource(site=site, telemetry=Telemetry(), subjects=["events"], durable="test")
        async with source:
            async for batch in source.batches():
                for message in batch.records:
                    assert message.tags["cluster"] == cluster
                    if message.name == "job":
                        function = message.tags["function"]
                        found[cluster].append({**json.loads(str(message.value)), "is": function})
                assert batch.ack
                await batch.ack()

    tasks = [asyncio.create_task(follow(cluster)) for cluster in STARTS]
    try:
        yield found
    finally:
        await end_tasks(tasks)


def set_jobs(programs: Programs, cluster: str, *running: int, ended: Mapping[int, str]) -> None:
    """Set the jobs that squeue lists, and those that sacct does, by their final states."""
    start, node = STARTS[cluster], NODES[cluster]
    programs.set_squeue(
        *(squeue_job(str(job), "RUNNING", start=start, nodes=node) for job in running)
    )
    programs.set_sacct(
        *(
            sacct_row(str(job), state, start=start, nodelist=node, end=END)
            for job, state in ended.items()
        )
    )


def summary(events: list[dict[str, Any]]) -> list[tuple[str, int, str | None]]:
    return sorted((event["is"], event["jobId"], event.get("jobState")) for event in events)


async def test_clusters_with_same_job_ids_are_kept_apart_over_restart(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    """Each cluster's jobs start and end once under its name; the state of each is read again.

    Each cluster's commands get its own slurm.conf.
    """
    programs = {cluster: Programs(tmp_path / f"bin-{cluster}") for cluster in STARTS}
    for cluster, each in programs.items():
        set_jobs(each, cluster, 7, 8, ended={})
    recipes = [recipe_of(cluster, programs[cluster], tmp_path) for cluster in STARTS]
    environ = {"CCPIPE_BUS__SERVERS": nats_server.url, "XDG_STATE_HOME": str(tmp_path)}
    async with collecting(nats_server) as found:
        bridge = await command.start("bridge", *recipes, **environ)
        await eventually(lambda: all(len(events) == 2 for events in found.values()))
        assert (await command.ended(bridge, signal.SIGTERM)).code == 0
        set_jobs(programs["fritz"], "fritz", 8, ended={7: "COMPLETED"})
        set_jobs(programs["alex"], "alex", 8, ended={7: "FAILED"})
        bridge = await command.start("bridge", *recipes, **environ)
        await eventually(lambda: all(len(events) >= 3 for events in found.values()))
        code, _, log = await command.ended(bridge, signal.SIGTERM)
    assert code == 0, log
    starts = [("start_job", 7, None), ("start_job", 8, None)]
    assert summary(found["fritz"]) == [*starts, ("stop_job", 7, "completed")]
    assert summary(found["alex"]) == [*starts, ("stop_job", 7, "failed")]
    for cluster, events in found.items():
        assert {event["cluster"] for event in events} == {cluster}
        assert len({event["startTime"] for event in events}) == 1
        assert f"{cluster}: bridge {cluster}: 1 records read, " in log
        calls = programs[cluster].calls()
        assert all(call.endswith(f"SLURM_CONF={tmp_path}/{cluster}/slurm.conf") for call in calls)
    start_times = [events[0]["startTime"] for events in found.values()]
    assert start_times[1] - start_times[0] == 60


async def test_outage_of_one_cluster_leaves_the_other_running(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    """The log names the one whose commands fail; the other is polled as before."""
    programs = {cluster: Programs(tmp_path / f"bin-{cluster}") for cluster in STARTS}
    set_jobs(programs["fritz"], "fritz", 7, ended={})
    for name in NAMES:
        programs["alex"].set(name, None)
    recipes = [recipe_of(cluster, programs[cluster], tmp_path) for cluster in STARTS]
    environ = {"CCPIPE_BUS__SERVERS": nats_server.url, "XDG_STATE_HOME": str(tmp_path)}
    async with collecting(nats_server) as found:
        bridge = await command.start("bridge", *recipes, **environ)
        await eventually(lambda: len(found["fritz"]) == 1)
        set_jobs(programs["fritz"], "fritz", ended={7: "COMPLETED"})
        await eventually(lambda: len(found["fritz"]) == 2)
        code, _, log = await command.ended(bridge, signal.SIGTERM)
    assert code == 0, log
    assert found["alex"] == []
    assert re.search(r"WARNING alex: .*squeue", log)
    assert "WARNING fritz" not in log


async def test_recipes_with_same_state_file_do_not_run(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    """The second one ends the process as wrong configuration, and is named."""
    programs = Programs(tmp_path / "bin")
    recipes = [recipe_of(cluster, programs, tmp_path) for cluster in STARTS]
    environ = {"CCPIPE_BUS__SERVERS": nats_server.url, "XDG_STATE_HOME": str(tmp_path)}
    state = str(tmp_path / "shared.state")
    code, _, log = await command.finished(
        "bridge", *recipes, **environ, CCPIPE_SOURCE__STATE_FILE=state
    )
    assert code == 78
    assert re.search(rf"^ccpipe: (fritz|alex): .*{state} is already in use$", log, re.MULTILINE)
