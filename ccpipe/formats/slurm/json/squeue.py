"""The JSON of squeue, of ``scontrol show job`` and of slurmrestd: jobs.

22.05 loses whether a time limit is infinite or not set, and what the CPUs of a job are: its
``scontrol show job -d`` prints both.
"""

from typing import Any

from ccpipe.errors import DataError
from ccpipe.formats.slurm.job_id import SlurmId
from ccpipe.formats.slurm.json.document import JsonObject, read_lists
from ccpipe.formats.slurm.reading import ParsedOutput
from ccpipe.formats.slurm.records import Allocation, LiveJob
from ccpipe.formats.slurm.values import whole

_OVERSUBSCRIBE = {"NONE": "NO", "OVERSUBSCRIBE": "YES"}
"""What scontrol prints for what JSON says of a job that shares its nodes."""

_TEXTS = {
    "name": "name",
    "user": "user_name",
    "group": "group_name",
    "account": "account",
    "cluster": "cluster",
    "partition": "partition",
    "qos": "qos",
    "reservation": "resv_name",
    "wckey": "wckey",
    "description": "state_description",
    "node_list": "nodes",
    "batch_host": "batch_host",
    "req_node_list": "required_nodes",
    "exc_node_list": "excluded_nodes",
    "req_tres": "tres_req_str",
    "alloc_tres": "tres_alloc_str",
    "tres_per_job": "tres_per_job",
    "tres_per_node": "tres_per_node",
    "tres_per_task": "tres_per_task",
    "dependency": "dependency",
    "licenses": "licenses",
    "features": "features",
    "comment": "comment",
    "admin_comment": "admin_comment",
    "system_comment": "system_comment",
    "command": "command",
    "work_dir": "current_working_directory",
    "std_out": "standard_output",
    "std_err": "standard_error",
    "container": "container",
}
"""Fields of a job that are texts, and their keys."""

_NUMBERS = {
    "uid": "user_id",
    "gid": "group_id",
    "ran_before_suspension": "pre_sus_time",
    "priority": "priority",
    "nice": "nice",
    "restarts": "restart_cnt",
    "nodes": "node_count",
    "cpus": "cpus",
    "tasks": "tasks",
    "cpus_per_task": "cpus_per_task",
}
"""Those that are whole numbers."""

_TIMES = {
    "submit": "submit_time",
    "eligible": "eligible_time",
    "start": "start_time",
    "end": "end_time",
    "suspended_at": "suspend_time",
}
"""Those that are times."""


def read_json(payload: bytes) -> ParsedOutput[LiveJob]:
    """Read the jobs of a document.

    Raises
    ------
    DataError
        if the bytes are no such document; it says what Slurm reports instead, if it does.

    """
    return read_lists(payload, {"jobs": lambda job: [_job(job)]})


def _job(job: JsonObject) -> LiveJob:
    state, *flags = job.states("job_state") or ("",)
    if not state:
        raise DataError("no job_state")
    exit_code, exit_signal = job.exit_code("exit_code")
    derived_code, derived_signal = job.exit_code("derived_exit_code")
    shared = next(iter(job.states("shared")), None)
    plain: dict[str, Any] = {field: job.text(key) for field, key in _TEXTS.items()}
    plain |= {field: job.whole(key) for field, key in _NUMBERS.items()}
    plain |= {field: job.time(key) for field, key in _TIMES.items()}
    return LiveJob(
        _id(job),
        state=state,
        state_flags=tuple(flags),
        reason=job.word("state_reason"),
        exit_code=exit_code,
        exit_signal=exit_signal,
        derived_exit_code=derived_code,
        derived_exit_signal=derived_signal,
        time_limit=job.minutes("time_limit"),
        allocation=_allocation(job),
        memory_per_cpu=job.megabytes("memory_per_cpu"),
        memory_per_node=job.megabytes("memory_per_node"),
        gres_detail=job.texts("gres_detail"),
        oversubscribe=_OVERSUBSCRIBE.get(shared, shared) if shared else "OK",
        is_batch=job.flag("batch_flag"),
        **plain,
    )


def _id(job: JsonObject) -> SlurmId:
    number = job.number("job_id")
    if number is None:
        raise DataError("no job_id")
    array, het = job.number("array_job_id"), job.number("het_job_id")
    tasks = job.text("array_task_string") or ""
    return SlurmId(
        number,
        array_job=array,
        array_task=job.whole("array_task_id") if array and not tasks else None,
        pending_tasks=tasks,
        het_job=het,
        het_offset=job.whole("het_job_offset") if het else None,
    )


def _allocation(job: JsonObject) -> tuple[Allocation, ...]:
    """Read what the job has of each node, in either dialect."""
    modern = [
        Allocation(
            node_list=node.text("name") or "",
            cpu_count=node.whole("cpus", "count"),
            cores=tuple(
                (socket.whole("index") or 0, core.whole("index") or 0)
                for socket in node.objects("sockets")
                for core in socket.objects("cores")
                if "ALLOCATED" in core.states("status")
            ),
            memory=node.megabytes("memory", "allocated"),
        )
        for node in job.objects("job_resources", "nodes", "allocation")
    ]
    return tuple(modern) or tuple(
        Allocation(
            node_list=node.text("nodename") or "",
            cores=tuple(_cores(node.get("sockets"))),
            memory=node.megabytes("memory_allocated"),
        )
        for node in job.objects("job_resources", "allocated_nodes")
    )


def _cores(sockets: Any) -> list[tuple[int, int]]:
    """Read ``{"0": {"cores": {"1": "allocated"}}}``, as 22.05 writes it."""
    found = []
    for socket, inside in sockets.items() if isinstance(sockets, dict) else ():
        cores = inside.get("cores") if isinstance(inside, dict) else None
        for core, state in cores.items() if isinstance(cores, dict) else ():
            if isinstance(state, str) and state.startswith("allocated"):
                found.append((whole(socket) or 0, whole(core) or 0))
    return found
