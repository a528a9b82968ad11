"""cc-backend's REST API: starts and stops of jobs, one by one, each confirmed; states of nodes.

Over NATS cc-backend handles jobs with eight workers, unordered and without replies, so that
whatever arrives while it is down is lost. Here an unconfirmed start or stop is sent again, and one
that cc-backend already has counts as stored.

Source: cc-backend's ``internal/api/{rest,job,node,nats}.go`` (1.5.4).
"""

import asyncio
import logging
import time
from collections.abc import Collection, Sequence
from http import HTTPStatus
from typing import Any, Self

import msgspec

from ccpipe.config import Duration
from ccpipe.errors import ConfigError, DataError, RejectedError, UnavailableError
from ccpipe.formats.lineprotocol import Lines, to_lines
from ccpipe.jobs import JobReport, ReportedJobs, RunKey
from ccpipe.jobs.pending import PENDING_EVENT
from ccpipe.message import Kind, Message, event
from ccpipe.pipeline import Limits, Sink
from ccpipe.sinks.http import HttpSink, Response, judge

log = logging.getLogger(__name__)

_PATHS = {"start_job": "/api/jobs/start_job/", "stop_job": "/api/jobs/stop_job/"}
_JOBS = "/api/jobs/"
_NODE_STATES = "/api/nodestate/"
_THERE_ALREADY = ("already exists", "already been stopped", "UNIQUE constraint failed: job")
"""Error texts with status 422, and with 500 for a start that is still in its cache."""
_UNKNOWN = "finding job failed"
"""Error text with status 404 for a stop."""
_NEVER = (_UNKNOWN, "constraint failed")
"""Error text with status 404 or 500 for which retrying is pointless."""
_NO_ROUTE = (
    "cc-backend does not take jobs at this address: its NATS API is enabled, which disables this "
    "one. Remove api-subjects from its configuration, or set publish to send jobs over NATS"
)

PAGE_JOBS = 1000
PAGE_BYTES = 256 * 2**20
SECOND = 10**9
RETRY_SECONDS = 60.0
"""Time after which a failed comparison is repeated."""
CONFIRM_SECONDS = 30.0
"""Time in which cc-backend must show at least one more of the jobs published over NATS."""
MAX_TRIES = 20
"""Attempts in which cc-backend showed nothing of what was published, before it is rejected."""


class _ListedJob(msgspec.Struct, frozen=True):
    """A job in cc-backend's list."""

    jobId: int  # noqa: N815 - cc-backend's keys
    cluster: str
    startTime: int  # noqa: N815
    jobState: str  # noqa: N815


class _Page(msgspec.Struct, frozen=True):
    jobs: list[_ListedJob]


class _NodeStates(msgspec.Struct):
    """The payload of a ``nodestate``; all that a node contains is passed on."""

    cluster: str
    nodes: list[dict[str, Any]]


class CcBackendSink(HttpSink[Lines]):
    """Reports jobs to cc-backend in the order in which they arrive, and the states of nodes."""

    takes = Lines

    stored = frozenset({200, 201})

    # Each request has a shorter timeout.
    limits = Limits(max_records=100, max_wait=0.0, write_timeout=300.0)

    def __init__(
        self,
        *,
        url: str = "http://127.0.0.1:8080",
        publish: Sink[Any] | None = None,
        state_file: str = "",
        compare_interval: Duration = Duration(3600),
        **http: Any,
    ) -> None:
        """Configure the address.

        Parameters
        ----------
        url
            cc-backend's address. ``token_file`` contains a JWT of a user whose only role is
            ``api``.
        publish
            A sink, such as ``nats``, that publishes starts and stops where cc-backend's NATS API
            receives them; cc-backend is then queried for them. Unset: they are posted.
        state_file
            A file, on a local disk, of the jobs reported. With it the jobs that cc-backend shows
            as running are compared also after a restart.
        compare_interval
            How often they are compared; also done after cc-backend did not answer. Missing
            jobs are sent again.

        """
        super().__init__(url=url, **http)
        if self.compression != "none":
            raise ConfigError("compression: cc-backend does not read compressed requests")
        self.publish = publish
        self._reported = ReportedJobs(state_file)
        self._interval = float(compare_interval)
        self._next_comparison = 0.0
        self._tries = 0

    async def __aenter__(self) -> Self:
        self._reported.state.open()
        await super().__aenter__()
        if self.publish is not None:
            await self.publish.__aenter__()
        return self

    async def __aexit__(self, *exit_: object) -> None:
        if self.publish is not None:
            await self.publish.__aexit__(*exit_)
        await super().__aexit__(*exit_)
        self._reported.state.close()

    async def write(self, records: Lines) -> None:
        """Report starts and stops of jobs, and the latest state of each node."""
        jobs, nodes = _sorted(records)
        await self._compare_if_due()
        try:
            if self.publish is None:
                for number, report in jobs.items():
                    await self._post_job(report, number)
            else:
                await self._publish_jobs(self.publish, jobs)
            for cluster, states in nodes.items():
                await self._post_states(cluster, states)
        except UnavailableError:
            self._next_comparison = 0.0
            raise
        finally:
            self._reported.state.commit(is_durable=True)

    async def ask(self) -> None:
        """List the clusters, which needs the same token, and find out whether it takes jobs."""
        answer = await self.request("GET", "/api/clusters/")
        if answer.status == HTTPStatus.NOT_FOUND:
            raise RejectedError(f"{self._shown}/api/clusters/: {answer}")
        if answer.status != HTTPStatus.OK:
            judge(answer, f"{self._shown}/api/clusters/: {answer}")
        if self.publish is None:
            self._require_route(await self.request("POST", _PATHS["start_job"]))

    def is_receipt(self, answer: Response) -> bool:
        """Return whether the JSON confirms the request; states of nodes have an empty response."""
        return super().is_receipt(answer) and (answer.text or "{").startswith("{")

    def _require_route(self, answer: Response) -> None:
        """Raise ConfigError if a response is not cc-backend's, whose errors are JSON."""
        if answer.status == HTTPStatus.NOT_FOUND and not answer.text.startswith("{"):
            raise ConfigError(f"{self._shown}{_PATHS['start_job']}: {answer}; {_NO_ROUTE}")

    # over REST

    async def _post_job(self, report: JobReport, number: int) -> None:
        """Post a start or a stop; before the stop of a job that it has lost, also its start."""
        answer = await self._post(report)
        start = self._reported.start_of(report.key)
        if _UNKNOWN in answer.text and start is not None:
            log.warning("%s has lost the start of %s: sending it again", self._shown, report.key)
            await self._post(start)
            answer = await self._post(report)
        if not _confirms(answer) and not self.is_receipt(answer):
            reason = f"{self._shown}{_PATHS[report.function]}: {answer}"
            if any(phrase in answer.text for phrase in _NEVER):
                raise RejectedError(reason, [number])
            try:
                judge(answer, reason)
            except RejectedError:
                raise RejectedError(reason, [number]) from None
        self._reported.add(report)

    async def _post(self, report: JobReport) -> Response:
        path, body = _PATHS[report.function], report.payload.encode()
        answer = await self.request("POST", path, body, headers=_JSON)
        self._require_route(answer)
        return answer

    async def _post_states(self, cluster: str, states: dict[str, dict[str, Any]]) -> None:
        body = msgspec.json.encode({"cluster": cluster, "nodes": list(states.values())})
        await self.post(body, path=_NODE_STATES, headers=_JSON)

    # over NATS

    async def _publish_jobs(self, sink: Sink[Any], jobs: dict[int, JobReport]) -> None:
        """Publish starts, then stops, and wait for each until cc-backend shows it.

        Those are rejected that it seems to refuse: it shows others that were published with them,
        or does not show them after many attempts.
        """
        for function in ("start_job", "stop_job"):
            asked = {number: each for number, each in jobs.items() if each.function == function}
            missing = await self._missing(asked)
            if not missing:
                continue
            await sink.write(to_lines(_event(each) for each in missing.values()))
            left = await self._until_shown(missing)
            self._tries = self._tries + 1 if len(left) == len(missing) else 0
            if left and not 0 < self._tries < MAX_TRIES:
                raise RejectedError(f"{self._shown} does not show it after {function}", list(left))
            if left:
                raise UnavailableError(
                    f"{self._shown} shows none of {len(left)} events {function} that were "
                    "published: is it connected to NATS, and is the subject its "
                    "subject-job-event?"
                )

    async def _until_shown(self, missing: dict[int, JobReport]) -> dict[int, JobReport]:
        """Wait while cc-backend shows ever more events; return what it does not."""
        last = time.monotonic()
        while missing and time.monotonic() < last + CONFIRM_SECONDS:
            await asyncio.sleep(0.1)
            left = await self._missing(missing)
            if len(left) < len(missing):
                last, missing = time.monotonic(), left
        return missing

    async def _missing(self, jobs: dict[int, JobReport]) -> dict[int, JobReport]:
        """Return the starts and stops that cc-backend does not show; record the others."""
        missing = {}
        for number, report in jobs.items():
            start = self._reported.start_of(report.key)
            key = start.key if start and not report.key.start else report.key
            second = f"{key.start // SECOND}-{key.start // SECOND}"
            shown = await self._list({"cluster": key.cluster, "start-time": second})
            states = [job.jobState for job in shown if job.jobId == key.id]
            if states and (report.function == "start_job" or states[0] != "running"):
                self._reported.add(report)
            else:
                missing[number] = report
        return missing

    # differences

    async def _compare_if_due(self) -> None:
        """Send again what cc-backend lacks; if that fails, new records are written first."""
        if time.monotonic() < self._next_comparison:
            return
        self._next_comparison = time.monotonic() + RETRY_SECONDS
        try:
            shown = await self._list({"state": "running"})
            await self._repair(
                {RunKey(job.cluster, job.jobId, job.startTime * SECOND) for job in shown}
            )
        except (UnavailableError, RejectedError) as error:
            log.warning("comparing running jobs failed: %s", error)
        else:
            self._next_comparison = time.monotonic() + self._interval

    async def _repair(self, running: Collection[RunKey]) -> None:
        different = dict(enumerate(self._reported.differences(running)))
        if different:
            log.warning(
                "%s has lost %d starts and stops of jobs: sending them again",
                self._shown, len(different),
            )  # fmt: skip
        for number, report in different.items():
            try:
                if self.publish is None:
                    await self._post_job(report, number)
                else:
                    await self._publish_jobs(self.publish, {number: report})
            except RejectedError as error:
                log.warning("%s", error)

    async def _list(self, filters: dict[str, str]) -> list[_ListedJob]:
        """Return cc-backend's jobs; those that change meanwhile may be missing or duplicated."""
        jobs: list[_ListedJob] = []
        for number in range(1, 2**31):
            params = {**filters, "items-per-page": str(PAGE_JOBS), "page": str(number)}
            answer = await self.request("GET", _JOBS, params=params, max_bytes=PAGE_BYTES)
            if answer.status != HTTPStatus.OK:
                judge(answer, f"{self._shown}{_JOBS}: {answer}")
            try:
                page = msgspec.json.decode(answer.text, type=_Page)
            except msgspec.MsgspecError as error:
                raise UnavailableError(f"{self._shown}{_JOBS}: {error}: {answer}") from None
            jobs += page.jobs
            if len(page.jobs) < PAGE_JOBS:
                break
        return jobs


_JSON = {"Content-Type": "application/json"}


_IGNORED = frozenset({"nodereason", PENDING_EVENT})
"""Classes of events that cc-backend does not know: they arrive where all have one subject."""


def _sorted(
    records: Sequence[Message],
) -> tuple[dict[int, JobReport], dict[str, dict[str, dict[str, Any]]]]:
    """Return jobs by index, and each node's latest state by cluster; raises RejectedError.

    cc-backend gives a state the time at which it arrives, so that only the latest is of use.
    """
    jobs: dict[int, JobReport] = {}
    nodes: dict[str, dict[str, dict[str, Any]]] = {}
    for number, record in enumerate(records):
        if record.kind is Kind.EVENT and record.name in _IGNORED:
            continue
        try:
            if record.name == "nodestate" and record.kind is Kind.EVENT:
                states = msgspec.json.decode(str(record.value), type=_NodeStates)
                nodes.setdefault(states.cluster, {}).update(
                    (str(node.get("hostname")), node) for node in states.nodes
                )
            else:
                jobs[number] = JobReport.of(record)
        except (DataError, msgspec.MsgspecError, UnicodeError, RecursionError) as error:
            raise RejectedError(f"not for cc-backend: {error}", [number]) from None
    return jobs, nodes


def _confirms(answer: Response) -> bool:
    refusals = (HTTPStatus.UNPROCESSABLE_ENTITY, HTTPStatus.INTERNAL_SERVER_ERROR)
    return answer.status in refusals and any(each in answer.text for each in _THERE_ALREADY)


def _event(report: JobReport) -> Message:
    tags = {"cluster": report.key.cluster, "type": "node"}
    return event("job", report.function, report.payload, time=report.key.start, tags=tags)
