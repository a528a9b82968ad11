"""What Sonar posts to its Kafka proxy: many envelopes in a stream, credentials beside each."""

from http import HTTPStatus

from ccpipe.errors import DataError
from ccpipe.formats.sonar import Envelope
from ccpipe.formats.sonar import decode as decode_sonar
from ccpipe.formats.sonar.envelopes import Envelopes, RejectedEnvelope
from ccpipe.formats.sonar.kprox import KproxControl, KproxDecoder, KproxTooLarge
from ccpipe.sources.http_requests import Clusters, Credentials, Refused

MAX_STREAM = 2**30
"""Maximum decompressed bytes of a stream; the proxy itself accepts as much."""
STREAM_PART = 2**20
"""Bytes of envelopes that are stored together."""


class KproxStream:
    """The envelopes of a stream, of which each must be of a cluster that its sender may write for.

    After `error` is set, nothing more is read: what was complete before can still be stored.
    """

    def __init__(
        self, credentials: Credentials, authorization: str, own_cluster: str, max_size: int
    ) -> None:
        """Check each message's user and password, or `authorization` where it has none."""
        self._credentials, self._authorization = credentials, authorization
        self._own_cluster = own_cluster
        self._decoder = KproxDecoder(max_size, self._check)
        self._clusters = Clusters(frozenset())
        self._envelopes: list[Envelope] = []
        self._rejected: list[RejectedEnvelope] = []
        self.complete = 0
        """Bytes of the messages that can be stored."""
        self.error: Refused | None = None

    @property
    def is_authenticated(self) -> bool:
        return self._credentials.are_required and bool(self._clusters.names)

    @property
    def size(self) -> int:
        return self._decoder.buffered + self.complete

    def feed(self, part: bytes) -> None:
        try:
            for data in self._decoder.feed(part):
                found = decode_sonar(data)
                self._clusters.check(name or self._own_cluster for name in found.clusters())
                self._envelopes += found
                self._rejected += found.rejected
                self.complete += len(data)
        except (Refused, DataError) as error:
            self._fail(error)

    def finish(self) -> None:
        try:
            self._decoder.finish()
        except DataError as error:
            self._fail(error)

    def take(self) -> Envelopes:
        """Return what is complete, once."""
        taken = Envelopes(self._envelopes, rejected=self._rejected, size=self.complete)
        self._envelopes, self._rejected, self.complete = [], [], 0
        return taken

    def _check(self, control: KproxControl) -> None:
        if control.sasl_user or control.sasl_password or not self._authorization:
            self._clusters = self._credentials.check_user(control.sasl_user, control.sasl_password)
        else:
            self._clusters = self._credentials.check(self._authorization)

    def _fail(self, error: Refused | DataError) -> None:
        if isinstance(error, DataError):
            is_large = isinstance(error, KproxTooLarge)
            status = HTTPStatus.REQUEST_ENTITY_TOO_LARGE if is_large else HTTPStatus.BAD_REQUEST
            error = Refused(status, str(error))
        self.error = error
