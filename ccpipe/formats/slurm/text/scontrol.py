"""The text of ``scontrol show``: jobs with their CPUs, nodes and partitions.

On several lines or, with ``-o``, on one. ``show job -d`` is the only command whose text names the
CPUs and GPUs that a job has on each node.

>>> payload = b"JobId=3 JobName=multi\\n   JobState=RUNNING TimeLimit=00:10:00\\n"
>>> job = read_jobs(payload).records[0]
>>> job.id.job, job.name, job.state, job.time_limit
(3, 'multi', 'RUNNING', 600)

Source: scontrol(1); ``src/api/job_info.c``, ``node_info.c`` and ``partition_info.c`` of Slurm
22.05, ``src/scontrol/info_job.c`` of 23.02 to 26.05.
"""

import re
from collections.abc import Callable
from datetime import tzinfo
from typing import Any, TypeVar

from ccpipe.errors import DataError
from ccpipe.formats.slurm.job_id import SlurmId
from ccpipe.formats.slurm.reading import ParsedOutput
from ccpipe.formats.slurm.records import Allocation, LiveJob, Node, Partition
from ccpipe.formats.slurm.resources import index_list
from ccpipe.formats.slurm.states import job_state, node_states
from ccpipe.formats.slurm.text.key_values import JOB, NODE, PARTITION, KeyValues, read_records
from ccpipe.formats.slurm.timestamp import TimeReader
from ccpipe.formats.slurm.values import (
    INFINITE,
    count,
    duration,
    exit_code,
    fraction,
    free_text,
    megabytes,
    signed,
    text,
    user_id,
    whole,
)

_REASON = re.compile(r" \[([^@\]\s]*)@([^\]\s]+)\]$", re.MULTILINE)

_WORDS = {
    "account": "Account",
    "partition": "Partition",
    "qos": "QOS",
    "reservation": "Reservation",
    "wckey": "WCKey",
    "reason": "Reason",
    "batch_host": "BatchHost",
    "req_node_list": "ReqNodeList",
    "exc_node_list": "ExcNodeList",
    "tres_per_job": "TresPerJob",
    "tres_per_node": "TresPerNode",
    "tres_per_task": "TresPerTask",
    "dependency": "Dependency",
    "oversubscribe": "OverSubscribe",
    "licenses": "Licenses",
    "features": "Features",
}
"""Fields of a job that are one word, and their keys."""

_FREE_TEXTS = {
    "comment": "Comment",
    "admin_comment": "AdminComment",
    "system_comment": "SystemComment",
    "command": "Command",
    "work_dir": "WorkDir",
    "std_out": "StdOut",
    "std_err": "StdErr",
    "container": "Container",
}
"""Those that users write."""

_TIMES = {
    "submit": "SubmitTime",
    "eligible": "EligibleTime",
    "start": "StartTime",
    "end": "EndTime",
    "suspended_at": "SuspendTime",
}
"""Those that are times."""


def read_jobs(payload: bytes, *, zone: tzinfo | None = None) -> ParsedOutput[LiveJob]:
    """Read ``scontrol show job``, better with ``-d``; times are those of `zone`.

    Without a zone, jobs with local times are rejected.
    """
    time = TimeReader(zone)
    return read_records(payload, JOB, lambda record: _job(record, time))


def read_nodes(payload: bytes, *, zone: tzinfo | None = None) -> ParsedOutput[Node]:
    """Read ``scontrol show node``; the zone is as for jobs."""
    time = TimeReader(zone)
    return read_records(payload, NODE, lambda record: _node(record, time))


def read_partitions(payload: bytes) -> ParsedOutput[Partition]:
    """Read ``scontrol show partition``."""
    return read_records(payload, PARTITION, _partition)


def _job(job: KeyValues, time: TimeReader) -> LiveJob:
    user, uid = user_id(job.get("UserId"))
    group, gid = user_id(job.get("GroupId"))
    exit_status, derived = (_read(job, exit_code, key) for key in ("ExitCode", "DerivedExitCode"))
    code, signal = exit_status or (None, None)
    derived_code, derived_signal = derived or (None, None)
    node_list = job.word("NodeList")
    plain: dict[str, Any] = {field: job.word(key) for field, key in _WORDS.items()}
    plain |= {field: free_text(job.get(key)) for field, key in _FREE_TEXTS.items()}
    plain |= {field: _read(job, time, key) for field, key in _TIMES.items()}
    return LiveJob(
        _job_id(job),
        name=job.get("JobName") or None,
        user=text(user),
        uid=uid,
        group=text(group),
        gid=gid,
        state=_required(job, job_state, "JobState"),
        exit_code=code,
        exit_signal=signal,
        derived_exit_code=derived_code,
        derived_exit_signal=derived_signal,
        ran_before_suspension=_read(job, whole, "SecsPreSuspend"),
        run_time=_read(job, duration, "RunTime"),
        time_limit=_read(job, duration, "TimeLimit"),
        priority=_read(job, whole, "Priority"),
        nice=_read(job, signed, "Nice"),
        restarts=_read(job, whole, "Restarts"),
        node_list=node_list,
        allocation=tuple(map(_allocation, job.groups)),
        nodes=_read(job, count, "NumNodes"),
        cpus=_read(job, count, "NumCPUs"),
        tasks=_read(job, count, "NumTasks"),
        cpus_per_task=_read(job, count, "CPUs/Task"),
        memory_per_cpu=_read(job, megabytes, "MinMemoryCPU"),
        memory_per_node=_read(job, megabytes, "MinMemoryNode"),
        req_tres=job.word("ReqTRES") or (None if node_list else job.word("TRES")),
        alloc_tres=job.word("AllocTRES") or (job.word("TRES") if node_list else None),
        is_batch={"0": False, "1": True}.get(job.get("BatchFlag")),
        **plain,
    )


_Value = TypeVar("_Value")


def _read(record: KeyValues, reader: Callable[[str], _Value], *keys: str) -> _Value:
    """Read a value; raises DataError that names the key."""
    try:
        return reader(record.get(*keys))
    except DataError as error:
        raise DataError(f"{keys[0]}: {error}") from None


def _required(record: KeyValues, reader: Callable[[str], _Value], key: str) -> _Value:
    """Read a value that no whole record lacks."""
    if not record.get(key):
        raise DataError(f"no {key}: the record is cut off")
    return _read(record, reader, key)


def _job_id(job: KeyValues) -> SlurmId:
    number, array, task = job.get("JobId"), job.get("ArrayJobId"), job.get("ArrayTaskId")
    het = job.get("HetJobId", "PackJobId")
    if array:
        shown = f"{array}_{task}" if task.isdigit() else f"{array}_[{task}]"
        return SlurmId.read(shown, number)
    if het:
        return SlurmId.read(f"{het}+{job.get('HetJobOffset', 'PackJobOffset')}", number)
    return SlurmId.read(number)


def _allocation(group: dict[str, str]) -> Allocation:
    cpu_ids = text(group.get("CPU_IDs", ""))
    return Allocation(
        node_list=group.get("Nodes", ""),
        cpu_ids=cpu_ids,
        cpu_count=len(index_list(cpu_ids)) if cpu_ids else None,
        memory=megabytes(group.get("Mem", "")),
        gres=text(group.get("GRES", group.get("GRES_IDX", ""))),
    )


def _node(node: KeyValues, time: TimeReader) -> Node:
    reason = node.get("Reason")
    noted = _REASON.search(reason)
    return Node(
        name=node.get("NodeName"),
        states=_required(node, node_states, "State"),
        partitions=_names(node, "Partitions"),
        hostname=node.word("NodeHostName"),
        address=node.word("NodeAddr"),
        reason=free_text(_REASON.sub("", reason, count=1)),
        reason_user=noted[1] if noted else None,
        reason_time=time(noted[2]) if noted else None,
        cpus=_read(node, whole, "CPUTot"),
        alloc_cpus=_read(node, whole, "CPUAlloc"),
        cpu_load=_read(node, fraction, "CPULoad"),
        boards=_read(node, whole, "Boards"),
        sockets=_read(node, whole, "Sockets"),
        cores_per_socket=_read(node, whole, "CoresPerSocket"),
        threads_per_core=_read(node, whole, "ThreadsPerCore"),
        memory=_read(node, megabytes, "RealMemory"),
        alloc_memory=_read(node, megabytes, "AllocMem"),
        free_memory=_read(node, megabytes, "FreeMem"),
        tmp_disk=_read(node, megabytes, "TmpDisk"),
        weight=_read(node, whole, "Weight"),
        features=_names(node, "AvailableFeatures"),
        active_features=_names(node, "ActiveFeatures"),
        gres=node.word("Gres"),
        gres_used=node.word("GresUsed"),
        tres=node.word("CfgTRES"),
        alloc_tres=node.word("AllocTRES"),
        architecture=node.word("Arch"),
        operating_system=node.word("OS"),
        version=node.word("Version"),
        comment=free_text(node.get("Comment")),
        boot_time=_read(node, time, "BootTime"),
        slurmd_start_time=_read(node, time, "SlurmdStartTime"),
        last_busy=_read(node, time, "LastBusyTime"),
    )


def _names(record: KeyValues, key: str) -> tuple[str, ...]:
    found = record.word(key)
    return tuple(found.split(",")) if found else ()


def _partition(partition: KeyValues) -> Partition:
    max_nodes = partition.get("MaxNodes")
    return Partition(
        name=partition.get("PartitionName"),
        node_list=partition.word("Nodes"),
        state=partition.word("State"),
        is_default=partition.get("Default") == "YES",
        total_nodes=_read(partition, whole, "TotalNodes"),
        total_cpus=_read(partition, whole, "TotalCPUs"),
        max_time=_read(partition, duration, "MaxTime"),
        default_time=_read(partition, duration, "DefaultTime"),
        max_nodes=float("inf") if max_nodes in INFINITE else whole(max_nodes),
        min_nodes=_read(partition, whole, "MinNodes"),
        priority_tier=_read(partition, whole, "PriorityTier"),
        priority_job_factor=_read(partition, whole, "PriorityJobFactor"),
        qos=partition.word("QoS"),
        oversubscribe=partition.word("OverSubscribe"),
        tres=partition.word("TRES"),
        allow_accounts=_allowed(partition, "AllowAccounts"),
        allow_groups=_allowed(partition, "AllowGroups"),
        allow_qos=_allowed(partition, "AllowQos"),
    )


def _allowed(partition: KeyValues, key: str) -> str | None:
    """Return who is allowed; None where everybody is."""
    found = partition.word(key)
    return None if found == "ALL" else found
