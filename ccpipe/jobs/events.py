"""Starts and stops of jobs as ClusterCockpit's events: written, read, and kept as reported.

A store that loses some of the jobs whose starts and stops it has confirmed, such as one restored
from a backup, shows other jobs as running than those that run. ``ReportedJobs`` keeps what was
reported, and returns what must be reported again.

Source: cc-backend's ``internal/api/nats.go``; ClusterCockpit specification, *Events*.
"""

import json
import re
from collections.abc import Container, Iterator
from typing import Annotated, Any

import msgspec

from ccpipe.errors import DataError
from ccpipe.formats.clustercockpit import JobTag, Resource, StartJob, StopJob
from ccpipe.formats.lineprotocol.series import valid_tag
from ccpipe.jobs.job import RUNNING, Job, JobNode, RunKey
from ccpipe.jobs.lifecycle import MAX_JOBS, Function
from ccpipe.message import Kind, Message, event
from ccpipe.pipeline.state import StateStore

SECOND = 10**9
MEGABYTE = 10**6

TAG = JobTag("source", "ccpipe", "admin")
"""The tag of every start.

cc-backend inserts a job with a tag into its table of jobs at once, and any other into a cache that
it moves there every two minutes. A stop that meets this move leaves its job running for ever, and
changes another job instead (1.5.4).
"""


def is_complete(job: Job) -> bool:
    return job.can_be_reported and job.has_ended


def message(
    function: Function, job: Job, *, time: int | None = None, hostname: str = ""
) -> Message:
    """Return a start or a stop as an event.

    Its time is the start or stop, unless `time` (in nanoseconds) is given; its tag
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
    texts = {"jobName": job.name} | job.metadata | job.start_metadata
    numbers = {key: getattr(job, name) for key, name in _NUMBERS.items()}
    numbers["hetJobId"] = job.het_id or None
    metadata = {key: text for key, text in texts.items() if text}
    metadata |= {key: str(number) for key, number in numbers.items() if number is not None}
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
        requestedMemory=job.memory // MEGABYTE,
        jobState=job.state if job.has_ended else "",
        metaData=metadata,
        tags=[TAG],
    )


def stop_job(job: Job) -> StopJob:
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
    try:
        functions = function_of(start), function_of(stop)
        one, other = read_event(start), read_event(stop)
    except DataError:
        return False
    is_pair = functions == ("start_job", "stop_job") and one.key == other.key
    return is_pair and one.state != RUNNING


def function_of(message: Message) -> Function:
    """Return whether an event is a start or a stop; raises DataError if it is neither."""
    if message.name != "job" or message.kind is not Kind.EVENT:
        raise DataError(f"expected an event job, got {message.name!r}")
    text = message.tags.get("function", "")
    function = _FUNCTIONS.get(text)
    if function is None:
        raise DataError(
            f"an event job has the function {text!r:.40}: expected start_job or stop_job"
        )
    return function


def read_event(message: Message) -> Job:
    """Return the job of a start or a stop, with the message as its raw record.

    The state of a start is its stop's if the stop follows directly, else ``RUNNING``; the state of
    a stop may be missing. A cluster missing in the payload is taken from the tags.

    Raises DataError if it is neither, or its payload is not cc-backend's.
    """
    function = function_of(message)
    try:
        found = _PAYLOAD.decode(str(message.value))
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise DataError(f"the event's payload: {error}") from None
    texts = {key: str(value) for key, value in (found.metaData or {}).items()}
    state = found.jobState
    return Job(
        cluster=found.cluster or message.tags.get("cluster", ""),
        id=found.jobId,
        array_id=found.arrayJobId,
        state=state or RUNNING if function == "start_job" else state,
        name=texts.pop("jobName", ""),
        user=found.user,
        project=found.project,
        partition=found.partition,
        sub_cluster=found.subCluster,
        submit=found.submitTime * SECOND,
        start=found.startTime * SECOND,
        end=found.stopTime * SECOND,
        nodes=tuple(
            JobNode(node.hostname, tuple(node.hwthreads or ()), tuple(node.accelerators or ()))
            for node in found.resources or ()
        ),
        hwthreads=found.numHwthreads,
        accelerators=found.numAcc,
        memory=found.requestedMemory * MEGABYTE,
        shared=found.shared,
        walltime=found.walltime,
        metadata=texts,
        raw=message,
        **_numbers(texts),
    )


def _numbers(texts: dict[str, str]) -> dict[str, Any]:
    found = {key: texts.pop(key) for key in _NUMBERS if _INTEGER.fullmatch(texts.get(key, ""))}
    return {_NUMBERS[key]: int(text) for key, text in found.items()}


_INTEGER = re.compile("-?[0-9]{1,18}")
_Time = Annotated[int, msgspec.Meta(ge=0, lt=2**63 // SECOND)]
_Megabytes = Annotated[int, msgspec.Meta(ge=0, lt=2**63 // MEGABYTE)]
_Number = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]


class _Node(msgspec.Struct):
    hostname: str = ""
    hwthreads: list[int] | None = None
    accelerators: list[str] | None = None


class _Payload(msgspec.Struct):
    """The fields of either event that are read; writers differ in the others."""

    jobId: _Number  # noqa: N815 - cc-backend's keys, here and below
    cluster: str = ""
    user: str = ""
    project: str = ""
    partition: str = ""
    subCluster: str = ""  # noqa: N815
    arrayJobId: _Number = 0  # noqa: N815
    submitTime: _Time = 0  # noqa: N815
    startTime: _Time = 0  # noqa: N815
    stopTime: _Time = 0  # noqa: N815
    jobState: str = ""  # noqa: N815
    numHwthreads: _Number = 0  # noqa: N815
    numAcc: _Number = 0  # noqa: N815
    requestedMemory: _Megabytes = 0  # noqa: N815
    shared: str = ""
    walltime: _Number = 0
    resources: list[_Node] | None = None
    metaData: dict[str, Any] | None = None  # noqa: N815


_PAYLOAD = msgspec.json.Decoder(_Payload, strict=False)
_FUNCTIONS: dict[str, Function] = {"start_job": "start_job", "stop_job": "stop_job"}
_NUMBERS = {
    "arrayTaskId": "array_task",
    "hetJobId": "het_id",
    "hetJobOffset": "het_offset",
    "exitStatus": "exit_code",
}
"""Numbers that a start has in its metadata."""


def _encode(reported: StartJob | StopJob) -> str:
    """Return a payload as JSON, with U+FFFD for bytes that are not UTF-8."""
    try:
        return msgspec.json.encode(reported).decode()
    except UnicodeEncodeError:
        text = json.dumps(msgspec.to_builtins(reported), ensure_ascii=False, separators=(",", ":"))
        return _SURROGATE.sub("\ufffd", text)


_SURROGATE = re.compile("[\ud800-\udfff]")


MAX_ENDED = 10_000
"""Maximum number of jobs that ended of which the stop is kept; the oldest are dropped."""


class JobReport(msgspec.Struct, frozen=True):
    """A start or a stop of a job as it was sent."""

    function: Function
    key: RunKey
    payload: str
    """JSON, as cc-backend reads it."""

    @classmethod
    def of(cls, message: Message) -> "JobReport":
        """Return an event as a report; raises DataError if it is not a start or a stop."""
        return cls(function_of(message), read_event(message).run_key, str(message.value))


class ReportedJobs:
    """The latest reported run of each job."""

    def __init__(self, path: str = "") -> None:
        """Keep them in a state file, which ``open()`` opens, or else in memory."""
        self.state = StateStore(path)
        self._running = self.state.table("running", tuple[str, int], JobReport, maximum=MAX_JOBS)
        self._ended = self.state.table("ended", tuple[str, int], JobReport, maximum=MAX_ENDED)

    def add(self, report: JobReport) -> None:
        key = report.key[:2]
        if report.function == "stop_job":
            started = self._running.get(key)
            if started and report.key.start in (0, started.key.start):
                self._running.pop(key)
                # with the start that the stop may lack
                report = msgspec.structs.replace(report, key=started.key)
            self._ended.put(key, report)
        elif not ((ended := self._ended.get(key)) and ended.key == report.key):
            self._running.put(key, report)  # not a start that is repeated after its stop

    def start_of(self, key: RunKey) -> JobReport | None:
        started = self._running.get(key[:2])
        return started if started and key.start in (0, started.key.start) else None

    def differences(self, running: Container[RunKey]) -> Iterator[JobReport]:
        """Yield what must be reported again to a store that shows these jobs as running."""
        yield from [start for _, start in self._running.items() if start.key not in running]
        yield from [stop for _, stop in self._ended.items() if stop.key in running]
