"""ClusterCockpit's events to Sonar's records of jobs, clusters and nodes."""

import math
import re
from collections.abc import Mapping
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from ccpipe.errors import DataError
from ccpipe.formats import sonar
from ccpipe.formats.clustercockpit import NodeStates, TopologyEvent
from ccpipe.formats.nodelist import compress
from ccpipe.jobs import Job, function_of, read_event
from ccpipe.message import Message
from ccpipe.pipeline.state import StateStore
from ccpipe.translate.sonar.topology import sysinfo

SECOND = 10**9
MAX_JOBS = 100_000
"""Starts that are remembered; beyond, the oldest are forgotten."""
T = TypeVar("T")


class JobEvents:
    """Makes job records of events ``job``; that of an end includes what the start said."""

    def __init__(self, state: StateStore) -> None:
        self._starts = state.table("start_job", tuple[str, int], Job, maximum=MAX_JOBS)

    def record(self, message: Message) -> tuple[str, sonar.SlurmJob]:
        """Return the cluster and record of an event; the cluster may be in the payload only.

        Raises DataError if the event is neither a start nor an end, or cannot be decoded.
        """
        function, job = function_of(message), read_event(message)
        cluster = message.tags.get("cluster", "") or job.cluster
        if function == "stop_job":
            return cluster, _stopped(job, self._starts.get((cluster, job.id)))
        try:
            record = _started(job)
        except ValueError as error:
            raise DataError(f"walltime: {error}") from None
        metadata = {key: text for key, text in job.metadata.items() if key not in _LARGE}
        self._starts.put((cluster, job.id), replace(job, metadata=metadata, raw=None))
        return cluster, record


_LARGE = frozenset({"jobScript", "slurmInfo"})
"""Metadata that no record has, and that are not remembered."""


def _stopped(stop: Job, start: Job | None) -> sonar.SlurmJob:
    """Return the record of an end, with the fields of its start if that is of the same run."""
    begin = stop.start or (start.start if start else 0)
    record = sonar.SlurmJob(job_id=stop.id)
    if start is not None and start.start == begin:
        record = _started(start)
    elapsed = (stop.end - begin) // SECOND
    return replace(
        record,
        job_state=(stop.state or "completed").upper(),
        start_time=_time(begin),
        end_time=_time(stop.end),
        sacct=sonar.SacctData(ElapsedRaw=elapsed) if 0 < begin < stop.end else None,
    )


def _started(start: Job) -> sonar.SlurmJob:
    texts = start.metadata
    return sonar.SlurmJob(
        job_id=start.id,
        job_name=start.name,
        job_state="RUNNING",
        array_job_id=start.array_id,
        array_task_id=max(start.array_task or 0, 0),
        het_job_id=max(start.het_id, 0),
        het_job_offset=max(start.het_offset or 0, 0),
        user_name=start.user,
        account=start.project,
        submit_time=_time(start.submit),
        time_limit=sonar.ExtendedUint(math.ceil(start.walltime / 60))
        if start.walltime > 0
        else sonar.UNSET,
        partition=start.partition,
        reservation=texts.get("reservation", ""),
        nodes=tuple(compress(node.hostname for node in start.nodes)),
        distribution=texts.get("distribution", ""),
        requested_cpus=_number(texts, "requestedCpus") or start.hwthreads,
        requested_memory_per_node=start.memory // 10**6 * 1024,
        requested_node_count=_number(texts, "requestedNodes") or len(start.nodes),
        start_time=_time(start.start),
        allocated_resources=texts.get("allocatedResources", ""),
    )


def cluster(payload: str, time: int) -> sonar.ClusterAttributes:
    """Convert the payload of an event ``nodestate``; raises DataError."""
    reported = _read(payload, NodeStates)
    names: dict[tuple[str, ...], list[str]] = {}
    for node in reported.nodes:
        states = tuple(state.upper() for state in node.states)
        names.setdefault(states, []).append(node.hostname)
    nodes = [sonar.ClusterNodes(tuple(compress(group)), states) for states, group in names.items()]
    return sonar.ClusterAttributes(
        time=sonar.timestamp.write(time), cluster=reported.cluster, slurm=True, nodes=tuple(nodes)
    )


def node(payload: str, time: int) -> sonar.SysinfoAttributes:
    """Convert the payload of an event ``topology``; raises DataError."""
    return sysinfo(_read(payload, TopologyEvent), sonar.timestamp.write(time))


def _read(payload: str, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(payload, type=kind)
    except (msgspec.MsgspecError, UnicodeEncodeError, RecursionError) as error:
        raise DataError(f"the event's payload: {error}") from None


def _time(time: int) -> str:
    return sonar.timestamp.write(time) if time else ""


def _number(meta: Mapping[str, str], key: str) -> int:
    text = meta.get(key, "")
    return int(text) if re.fullmatch(r"[0-9]{1,19}", text) else 0
