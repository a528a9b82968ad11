"""Lines or Sonar's envelopes to any address, by POST."""

from typing import Any, Literal

from ccpipe.errors import ConfigError, RejectedError
from ccpipe.formats.lineprotocol import Lines, encode
from ccpipe.formats.sonar import WriteProfile
from ccpipe.formats.sonar import encode as encode_envelope
from ccpipe.formats.sonar.envelopes import Envelopes
from ccpipe.pipeline import Limits
from ccpipe.records import Records
from ccpipe.sinks.http import HttpSink, Response


class HttpPostSink(HttpSink[Any]):
    """Sends each batch of lines as one request, or each envelope as one."""

    stored = frozenset({200, 201, 202, 204})

    def __init__(
        self,
        *,
        url: str,
        format: Literal["line", "sonar"] = "line",  # noqa: A002 - the key in recipes
        precision: Literal["s", "ms", "us", "ns", "auto"] = "s",
        profile: WriteProfile = "spec",
        accept_html: bool = False,
        **http: Any,
    ) -> None:
        """Configure the address.

        Parameters
        ----------
        url
            Target URL; for envelopes, ``/sample``, ``/sysinfo``, ``/job`` or ``/cluster`` is
            appended.
        format
            What is sent: ``line`` for line protocol, ``sonar`` for envelopes.
        precision
            The unit of the timestamps of lines; ``auto`` uses the coarsest exact unit for each
            line.
        profile
            Target reader of the envelopes, such as ``jobanalyzer``.
        accept_html
            Treat a response with an HTML page as success; often the page of a login portal.

        Raises
        ------
        ConfigError
            if the options contradict each other.

        """
        super().__init__(url=url, **http)
        if format == "line" and profile != "spec":
            raise ConfigError("profile: goes with format = 'sonar'")
        self.format, self.precision, self.profile = format, precision, profile
        self.accept_html = accept_html
        self.takes = Lines if format == "line" else Envelopes
        self.limits = Limits(max_records=10_000 if format == "line" else 1)

    async def write(self, records: Records) -> None:
        """Send the records; a response of 200, 201, 202 or 204 means that they are stored."""
        if self.format == "line":
            headers = {"Content-Type": "text/plain; charset=utf-8"}
            await self.post(encode(records, precision=self.precision), headers=headers)
            return
        headers = {"Content-Type": "application/json"}
        for number, envelope in enumerate(records):
            if envelope.data is None:
                raise RejectedError("an envelope of errors only has no address", [number])
            body = encode_envelope(envelope, profile=self.profile) + b"\n"
            await self.post(body, path=f"/{envelope.data.type}", headers=headers)

    async def ask(self) -> None:
        """Check that a server responds; only a real request would show more."""
        await self.request("HEAD", "")

    def is_receipt(self, answer: Response) -> bool:
        is_page = "<html" in answer.text.lower()
        return super().is_receipt(answer) and (self.accept_html or not is_page)
