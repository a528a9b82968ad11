"""Starts and stops of jobs as ClusterCockpit's events.

Source: cc-backend's ``internal/api/nats.go``; ClusterCockpit specification, *Events*.
"""

import json
import re

import msgspec

from ccpipe.formats.clustercockpit import JobTag, Resource, StartJob, StopJob
from ccpipe.formats.lineprotocol.builder import valid_tag
from ccpipe.jobs.job import Job
from ccpipe.jobs.lifecycle import Function
from ccpipe.message import Message, event

SECOND = 10**9

TAG = JobTag("source", "ccpipe", "admin")
"""The tag of every start.

cc-backend inserts a job with a tag into its table of jobs at once, and any other into a cache that
it moves there every two minutes. A stop that meets this move leaves its job running for ever, and
changes another job instead (1.5.4).
"""


def is_complete(job: Job) -> bool:
    """Return whether a job has both a start and a stop to report."""
    return job.can_be_reported and job.has_ended


def message(
    function: Function, job: Job, *, time: int | None = None, hostname: str = ""
) -> Message:
    """Return a start or a stop as an event.

    Its time is that of the start or stop, unless `time` (in nanoseconds) is given; its tag
    ``hostname`` is the job's first node, unless `hostname` is given. A stop has a tag
    ``partition``, without which cc-energy-manager ignores it.
    """
    reported = start_job(job) if function == "start_job" else stop_job(job)
    tags = {"cluster": job.cluster, "hostname": hostname, "type": "node"}
    if not hostname and job.nodes:
        tags["hostname"] = valid_tag(job.nodes[0].hostname)
    if function == "stop_job":
        tags["partition"] = valid_tag(job.partition)
        own = stop_seconds(job)
    else:
        own = job.start // SECOND
    tags = {key: value for key, value in tags.items() if value}
    at = own * SECOND if time is None else time
    return event("job", function, _encode(reported), time=at, tags=tags)


def start_job(job: Job) -> StartJob:
    """Return the payload of a start; it contains the state if its stop follows directly."""
    numbers = {
        "arrayTaskId": job.array_task,
        "hetJobId": job.het_id or None,
        "hetJobOffset": job.het_offset,
        "exitStatus": job.exit_code,
    }
    texts = {key: text for key, text in (job.metadata | job.start_metadata).items() if text}
    metadata = {key: str(number) for key, number in numbers.items() if number is not None}
    return StartJob(
        jobId=job.id,
        user=job.user,
        cluster=job.cluster,
        startTime=job.start // SECOND,
        numNodes=len(job.nodes),
        resources=[
            Resource(node.hostname, list(node.hwthreads), list(node.accelerators))
            for node in job.nodes
        ],
        project=job.project,
        subCluster=job.sub_cluster,
        partition=job.partition,
        arrayJobId=job.array_id,
        numHwthreads=job.hwthreads or job.requested_hwthreads,
        numAcc=job.accelerators,
        shared=job.shared,
        walltime=job.walltime,
        submitTime=job.submit // SECOND,
        requestedMemory=job.memory,
        jobState=job.state if job.has_ended else "",
        metaData=texts | metadata,
        tags=[TAG],
    )


def stop_job(job: Job) -> StopJob:
    """Return the payload of a stop."""
    return StopJob(
        jobId=job.id,
        cluster=job.cluster,
        startTime=job.start // SECOND,
        stopTime=stop_seconds(job),
        jobState=job.state,
    )


def stop_seconds(job: Job) -> int:
    """Return the time of the end, never before the start, which cc-backend would reject."""
    return max(job.end, job.start) // SECOND


def is_stop_of(start: Message, stop: Message) -> bool:
    """Return whether two messages are the start and the stop of a job that were created together.

    They must share a payload: cc-backend handles payloads in no particular order. A start created
    while the job was running has no state and is never packed with others, so that a message
    repeated after a crash is packed as before, and the broker detects the duplicate.
    """
    functions = start.tags.get("function"), stop.tags.get("function")
    if (start.name, stop.name, *functions) != ("job", "job", "start_job", "stop_job"):
        return False
    try:
        one, other = _identify(start), _identify(stop)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return False
    return one == other and one.jobState != ""


class _Identity(msgspec.Struct, frozen=True):
    jobId: int  # noqa: N815 - cc-backend's keys
    cluster: str = ""
    jobState: str = ""  # noqa: N815


def _identify(reported: Message) -> _Identity:
    return msgspec.json.decode(str(reported.value), type=_Identity)


def _encode(reported: StartJob | StopJob) -> str:
    """Return a payload as JSON, with U+FFFD for bytes that are not UTF-8."""
    try:
        return msgspec.json.encode(reported).decode()
    except UnicodeEncodeError:
        text = json.dumps(msgspec.to_builtins(reported), ensure_ascii=False, separators=(",", ":"))
        return _SURROGATE.sub("\ufffd", text)


_SURROGATE = re.compile("[\ud800-\udfff]")
