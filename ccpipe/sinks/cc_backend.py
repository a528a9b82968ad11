"""cc-backend's REST API: starts and stops of jobs, one by one, each confirmed.

Over NATS cc-backend handles jobs with eight workers, unordered and without replies, so that
whatever arrives while it is down is lost. Here an unconfirmed start or stop is sent again, and one
that cc-backend already has counts as stored.
"""

from collections.abc import Sequence
from http import HTTPStatus
from typing import Any

from ccpipe.errors import RejectedError, UnavailableError
from ccpipe.formats.lineprotocol.messages import Messages
from ccpipe.message import Kind, Message
from ccpipe.pipeline import Limits
from ccpipe.sinks.http import HttpSink, Response, judge

_PATHS = {"start_job": "/api/jobs/start_job/", "stop_job": "/api/jobs/stop_job/"}
_THERE_ALREADY = ("already exists", "already been stopped", "UNIQUE constraint failed: job")
"""Error texts with status 422, and with 500 for a start that is still in its cache."""
_NEVER = ("finding job failed", "constraint failed")
"""Error text with status 404 or 500 for which retrying is pointless."""


class CcBackendSink(HttpSink):
    """Reports jobs to cc-backend in the order in which they arrive."""

    takes = Messages

    stored = frozenset({200, 201})

    limits = Limits(lines=100, age=0.0)

    def __init__(self, *, url: str = "http://127.0.0.1:8080", **http: Any) -> None:
        """Configure the address.

        Parameters
        ----------
        url
            cc-backend's address; ``/api/jobs/start_job/`` and ``/api/jobs/stop_job/`` are appended.
            ``token_file`` contains a JWT of a user with the role ``api``.

        """
        super().__init__(url=url, **http)

    async def write(self, records: Sequence[Message]) -> None:
        """Report starts and stops.

        Raises
        ------
        UnavailableError
            if cc-backend does not answer; repeating what it has already accepted is harmless.
        RejectedError
            for what is no start or stop of a job, and for what cc-backend refuses: among these
            the stop of a job that it does not know.
        DeniedError
            if it refuses us.

        """
        for number, record in enumerate(records):
            path = _PATHS.get(record.tags.get("function", ""))
            if record.name != "job" or record.kind is not Kind.EVENT or path is None:
                raise RejectedError("cc-backend takes start_job and stop_job only", [number])
            await self._report(path, str(record.value).encode(), number)

    async def ask(self) -> None:
        """List the clusters, which needs the same token."""
        answer = await self.request("GET", "/api/clusters/")
        if answer.status == HTTPStatus.NOT_FOUND:
            raise RejectedError(f"{self._shown}/api/clusters/: {answer}")
        if answer.status != HTTPStatus.OK:
            judge(answer.status, f"{self._shown}/api/clusters/: {answer}")

    def is_receipt(self, answer: Response) -> bool:
        """Return whether the JSON confirms the job, sent by this request or an earlier one."""
        if answer.status in (HTTPStatus.UNPROCESSABLE_ENTITY, HTTPStatus.INTERNAL_SERVER_ERROR):
            return any(phrase in answer.text for phrase in _THERE_ALREADY)
        return super().is_receipt(answer) and answer.text.startswith("{")

    async def _report(self, path: str, body: bytes, number: int) -> None:
        headers = {"Content-Type": "application/json"}
        try:
            await self.post(body, path=path, headers=headers)
        except RejectedError as error:
            raise RejectedError(str(error), [number]) from None
        except UnavailableError as error:
            if any(phrase in str(error) for phrase in _NEVER):
                raise RejectedError(str(error), [number]) from None
            raise
