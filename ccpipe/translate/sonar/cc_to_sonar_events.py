"""ClusterCockpit's events to Sonar's records of jobs, clusters and nodes."""

import re
from collections.abc import Mapping
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from ccpipe.errors import DataError
from ccpipe.formats.clustercockpit import NodeStates, StartJob, StopJob, TopologyEvent
from ccpipe.formats.nodelist import compress
from ccpipe.formats.sonar import (
    UNSET,
    ClusterAttributes,
    ClusterNodes,
    ExtendedUint,
    SacctData,
    SlurmJob,
    SysinfoAttributes,
    SysinfoGpuCard,
    timestamp,
)
from ccpipe.pipeline.state import StateStore

SECOND = 10**9
MAX_JOBS = 100_000
"""Starts that are remembered; beyond, the oldest are forgotten."""
T = TypeVar("T")


class JobEvents:
    """Makes job records of events ``job``; that of an end includes what the start said."""

    def __init__(self, state: StateStore) -> None:
        """Remember starts in `state`."""
        self._starts = state.table("start_job", tuple[str, int], StartJob, maximum=MAX_JOBS)

    def record(self, function: str, payload: str, cluster: str) -> tuple[str, SlurmJob]:
        """Return the cluster and record of an event; the cluster may be in the payload only.

        Raises
        ------
        DataError
            if the event is neither a start nor an end, or cannot be decoded.

        """
        if function == "start_job":
            start = _read(payload, StartJob)
            cluster = cluster or start.cluster
            try:
                record = _started(start)
            except ValueError as error:
                raise DataError(f"walltime: {error}") from None
            self._starts.put((cluster, start.jobId), _without_texts(start))
            return cluster, record
        if function == "stop_job":
            stop = _read(payload, StopJob)
            cluster = cluster or stop.cluster
            return cluster, _stopped(stop, self._starts.get((cluster, stop.jobId)))
        raise DataError(f"an event job has the function {function!r:.40}")


def _without_texts(start: StartJob) -> StartJob:
    """Return a start without what may be large and no record has: many are remembered."""
    texts = {"jobScript", "slurmInfo"}
    kept = {key: text for key, text in start.metaData.items() if key not in texts}
    return replace(start, metaData=kept)


def _stopped(stop: StopJob, start: StartJob | None) -> SlurmJob:
    """Return the record of an end, with the fields of its start if that is of the same run."""
    begin = stop.startTime or (start.startTime if start else 0)
    record = SlurmJob(job_id=stop.jobId)
    if start is not None and start.startTime == begin:
        record = _started(start)
    return replace(
        record,
        job_state=(stop.jobState or "completed").upper(),
        start_time=_time(begin),
        end_time=_time(stop.stopTime),
        sacct=SacctData(ElapsedRaw=stop.stopTime - begin) if 0 < begin < stop.stopTime else None,
    )


def _started(start: StartJob) -> SlurmJob:
    meta = start.metaData
    return SlurmJob(
        job_id=start.jobId,
        job_name=meta.get("jobName", ""),
        job_state="RUNNING",
        array_job_id=start.arrayJobId,
        array_task_id=_number(meta, "arrayTaskId"),
        het_job_id=_number(meta, "hetJobId"),
        het_job_offset=_number(meta, "hetJobOffset"),
        user_name=start.user,
        account=start.project,
        submit_time=_time(start.submitTime),
        time_limit=ExtendedUint(-(-start.walltime // 60)) if start.walltime > 0 else UNSET,
        partition=start.partition,
        reservation=meta.get("reservation", ""),
        nodes=tuple(compress(resource.hostname for resource in start.resources)),
        distribution=meta.get("distribution", ""),
        requested_cpus=_number(meta, "requestedCpus") or start.numHwthreads,
        requested_memory_per_node=start.requestedMemory * 1024,
        requested_node_count=_number(meta, "requestedNodes") or start.numNodes,
        start_time=_time(start.startTime),
        allocated_resources=meta.get("allocatedResources", ""),
    )


def cluster(payload: str, time: int) -> ClusterAttributes:
    """Convert the payload of an event ``nodestate``; raises DataError."""
    reported = _read(payload, NodeStates)
    names: dict[tuple[str, ...], list[str]] = {}
    for node in reported.nodes:
        states = tuple(state.upper() for state in node.states)
        names.setdefault(states, []).append(node.hostname)
    nodes = [ClusterNodes(tuple(compress(group)), states) for states, group in names.items()]
    return ClusterAttributes(
        time=timestamp.write(time), cluster=reported.cluster, slurm=True, nodes=tuple(nodes)
    )


def node(payload: str, time: int) -> SysinfoAttributes:
    """Convert the payload of an event ``topology``; raises DataError."""
    reported = _read(payload, TopologyEvent)
    cards = tuple(
        SysinfoGpuCard(
            index=card.index,
            uuid=card.id,
            address=card.address,
            manufacturer=card.type,
            model=card.model,
            architecture=card.architecture,
            driver=card.driver,
            firmware=card.firmware,
            memory=card.memory,
            power_limit=card.powerLimit,
            max_power_limit=card.maxPowerLimit,
            min_power_limit=card.minPowerLimit,
            max_ce_clock=card.maxClock,
            max_memory_clock=card.maxMemoryClock,
        )
        for card in reported.accelerators
    )
    return SysinfoAttributes(
        time=timestamp.write(time),
        cluster=reported.cluster,
        node=reported.hostname,
        os_name=reported.osName,
        os_release=reported.osRelease,
        architecture=reported.architecture,
        sockets=reported.socketsPerNode,
        cores_per_socket=reported.coresPerSocket,
        threads_per_core=reported.threadsPerCore,
        cpu_model=reported.processorType,
        memory=reported.memory,
        cards=cards,
        numa_nodes=reported.memoryDomains,
    )


def _read(payload: str, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(payload, type=kind)
    except (msgspec.MsgspecError, UnicodeEncodeError, RecursionError) as error:
        raise DataError(f"the event's payload: {error}") from None


def _time(seconds: int) -> str:
    return timestamp.write(seconds * SECOND) if seconds else ""


def _number(meta: Mapping[str, str], key: str) -> int:
    text = meta.get(key, "")
    return int(text) if re.fullmatch(r"[0-9]{1,19}", text) else 0
