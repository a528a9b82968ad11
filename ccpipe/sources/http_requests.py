"""HTTP requests from untrusted clients: who may write for which clusters, and bounded bodies.

Sonar posts many envelopes in a stream to its Kafka proxy, each with credentials.
"""

import base64
import zlib
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Mapping
from http import HTTPStatus
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple, Self

from ccpipe.config import read_secret, read_text
from ccpipe.errors import ConfigError, DataError
from ccpipe.formats.sonar import Envelope
from ccpipe.formats.sonar import decode as decode_sonar
from ccpipe.formats.sonar.envelopes import Envelopes, RejectedEnvelope
from ccpipe.formats.sonar.kprox import KproxControl, KproxDecoder, KproxTooLarge
from ccpipe.listening import is_same_secret

if TYPE_CHECKING:
    from aiohttp import web

CHUNK = 2**16
"""Bytes decompressed at once."""


class Refused(Exception):  # noqa: N818 - a response, not an internal error
    """A request that is answered with an error status."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class Clusters(NamedTuple):
    """The clusters that a client may write for."""

    names: frozenset[str]
    """``*`` for all."""

    def check(self, written: Iterable[str]) -> None:
        """Raise Refused with 403 if it may not write for one of them."""
        if "*" not in self.names and (foreign := sorted({*written} - self.names)):
            allowed = ", ".join(sorted(self.names)) or "none"
            raise Refused(
                HTTPStatus.FORBIDDEN,
                f"not allowed to write for cluster {foreign[0][:100]!r} (allowed: {allowed})",
            )


ALL_CLUSTERS = Clusters(frozenset("*"))


class Credentials(NamedTuple):
    """The accepted users and token, and what each may write."""

    users: Mapping[str, str]
    """Passwords by user."""
    token: str
    clusters: Mapping[str, Collection[str]] = {}
    """Clusters by user; other users write for the cluster of their own name and for `everyones`."""
    token_clusters: Collection[str] = ()
    everyones: Collection[str] = ()

    @classmethod
    def read(
        cls,
        users_file: str,
        token_file: str,
        clusters: Mapping[str, Collection[str]] = MappingProxyType({}),
        token_clusters: Collection[str] = (),
        everyones: Collection[str] = (),
    ) -> Self:
        """Read the configured files; raises ConfigError."""
        users: dict[str, str] = {}
        if users_file:
            text = read_text("users_file", users_file)
            for number, line in enumerate(text.split("\n"), 1):
                user, colon, password = line.strip().partition(":")
                if not line.strip():
                    continue
                if not (user and colon and password):
                    raise ConfigError(f"users_file: {users_file}: line {number}: no user:password")
                users[user] = password
            if not users:
                raise ConfigError(f"users_file: {users_file} names no user")
        if unknown := sorted(clusters.keys() - users.keys()):
            raise ConfigError(f"clusters: {unknown[0]!r} is not a user of users_file")
        token = read_secret("token_file", token_file) if token_file else ""
        return cls(users, token, clusters, token_clusters, everyones)

    @property
    def are_required(self) -> bool:
        return bool(self.users or self.token)

    def check(self, authorization: str) -> Clusters:
        """Check the header of a request; raises Refused with 401."""
        if not self.are_required:
            return ALL_CLUSTERS
        scheme, _, given = authorization.partition(" ")
        if scheme.lower() in ("token", "bearer"):
            if self.token and is_same_secret(given.strip(), self.token):
                return Clusters(frozenset(self.token_clusters))
        elif scheme.lower() == "basic":
            user, _, password = _decoded(given).partition(":")
            return self.check_user(user, password)
        raise _unknown()

    def check_user(self, user: str, password: str) -> Clusters:
        if not self.are_required:
            return ALL_CLUSTERS
        if not (is_same_secret(password, self.users.get(user, "")) and user in self.users):
            raise _unknown()
        return Clusters(frozenset(self.clusters.get(user, [user, *self.everyones])))


def _unknown() -> Refused:
    return Refused(HTTPStatus.UNAUTHORIZED, "unknown user, password or token")


def _decoded(basic: str) -> str:
    try:
        return base64.b64decode(basic, validate=True).decode()
    except ValueError:  # invalid Base64 or UTF-8
        return ""


async def read_body(request: "web.Request", limit: int, take: Callable[[int], None]) -> bytes:
    """Read a body, compressed or not, of at most `limit` bytes; `take` is called with sizes held.

    Raises Refused with 413 if it is larger, 415 if its encoding is unknown, 400 if it is corrupt.
    """
    parts: list[bytes] = []
    async for part in body_parts(request, limit):
        take(len(part))
        parts.append(part)
    return b"".join(parts)


async def body_parts(request: "web.Request", limit: int) -> AsyncIterator[bytes]:
    """Yield a body in parts of bounded size, decompressed; raises Refused as `read_body` does."""
    encoding = request.headers.get("Content-Encoding", "identity").lower()
    if encoding not in ("identity", "gzip", "deflate", ""):
        raise Refused(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, f"Content-Encoding {encoding}")
    unpack = Unpacker() if encoding in ("gzip", "deflate") else None
    size = 0
    async for chunk in request.content.iter_any():
        for part in unpack.pieces(chunk) if unpack else (chunk,):
            size += len(part)
            if size > limit:
                raise Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"more than {limit} bytes")
            yield part
    if unpack and not unpack.ended:
        raise Refused(HTTPStatus.BAD_REQUEST, f"the {encoding} body is cut off")


class Unpacker:
    """Decompresses gzip or zlib in pieces of bounded size."""

    def __init__(self) -> None:
        self._object = zlib.decompressobj(wbits=47)  # detects either format
        self._has_begun = False

    @property
    def ended(self) -> bool:
        return self._object.eof or not self._has_begun

    def pieces(self, chunk: bytes) -> Iterator[bytes]:
        """Yield the decompressed data of a chunk; raises Refused with 400."""
        is_full = False
        while chunk or is_full:
            if self._object.eof:  # gzip allows several members
                self._object = zlib.decompressobj(wbits=47)
            self._has_begun = True
            try:
                part = self._object.decompress(chunk, CHUNK)
            except zlib.error as error:
                raise Refused(HTTPStatus.BAD_REQUEST, f"not decompressed: {error}") from None
            yield part
            chunk = self._object.unconsumed_tail or self._object.unused_data
            is_full = len(part) == CHUNK and not self._object.eof  # there may be more output


MAX_STREAM = 2**30
"""Maximum decompressed bytes of a stream; the proxy itself accepts as much."""
STREAM_PART = 2**20
"""Bytes of envelopes that are stored together."""


class KproxStream:
    """The envelopes of a stream, of which each must be of a cluster that its sender may write for.

    After `error` is set, nothing more is read; envelopes completed before can still be stored.
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
