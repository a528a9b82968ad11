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


def read_json(payload: bytes) -> ParsedOutput[LiveJob]:
    """Read the jobs of a document.

    Raises
    ------
    DataError
        where the bytes are no such document; it says what Slurm reports instead, if it does.

    """
    return read_lists(payload, {"jobs": lambda job: [_job(job)]})


def _job(job: JsonObject) -> LiveJob:
    state, *flags = job.states("job_state") or ("",)
    if not state:
        raise DataError("no job_state")
    exit_code, exit_signal = job.exit_code("exit_code")
    derived_code, derived_signal = job.exit_code("derived_exit_code")
    shared = next(iter(job.states("shared")), None)
    return LiveJob(
        _id(job),
        name=job.text("name"),
        user=job.text("user_name"),
        uid=job.whole("user_id"),
        group=job.text("group_name"),
        gid=job.whole("group_id"),
        account=job.text("account"),
        cluster=job.text("cluster"),
        partition=job.text("partition"),
        qos=job.text("qos"),
        reservation=job.text("resv_name"),
        wckey=job.text("wckey"),
        state=state,
        state_flags=tuple(flags),
        reason=job.word("state_reason"),
        description=job.text("state_description"),
        exit_code=exit_code,
        exit_signal=exit_signal,
        derived_exit_code=derived_code,
        derived_exit_signal=derived_signal,
        submit=job.time("submit_time"),
        eligible=job.time("eligible_time"),
        start=job.time("start_time"),
        end=job.time("end_time"),
        suspended_at=job.time("suspend_time"),
        ran_before_suspension=job.whole("pre_sus_time"),
        time_limit=job.minutes("time_limit"),
        priority=job.whole("priority"),
        nice=job.whole("nice"),
        restarts=job.whole("restart_cnt"),
        node_list=job.text("nodes"),
        batch_host=job.text("batch_host"),
        req_node_list=job.text("required_nodes"),
        exc_node_list=job.text("excluded_nodes"),
        allocation=_allocation(job),
        nodes=job.whole("node_count"),
        cpus=job.whole("cpus"),
        tasks=job.whole("tasks"),
        cpus_per_task=job.whole("cpus_per_task"),
        memory_per_cpu=job.megabytes("memory_per_cpu"),
        memory_per_node=job.megabytes("memory_per_node"),
        req_tres=job.text("tres_req_str"),
        alloc_tres=job.text("tres_alloc_str"),
        tres_per_job=job.text("tres_per_job"),
        tres_per_node=job.text("tres_per_node"),
        tres_per_task=job.text("tres_per_task"),
        gres_detail=job.texts("gres_detail"),
        dependency=job.text("dependency"),
        oversubscribe=_OVERSUBSCRIBE.get(shared, shared) if shared else "OK",
        licenses=job.text("licenses"),
        features=job.text("features"),
        comment=job.text("comment"),
        admin_comment=job.text("admin_comment"),
        system_comment=job.text("system_comment"),
        command=job.text("command"),
        work_dir=job.text("current_working_directory"),
        std_out=job.text("standard_output"),
        std_err=job.text("standard_error"),
        container=job.text("container"),
        is_batch=job.flag("batch_flag"),
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
