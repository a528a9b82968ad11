"""Errors of the server: translated with a remedy, and those about permissions for who waits.

The server answers a forbidden publish with an error for the connection, not with a reply: a sender
that only waits for a reply would time out and retry forever.
"""

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Sequence

from ccpipe.bus.subjects import matches
from ccpipe.errors import DeniedError, RejectedError, UnavailableError

FULL = {
    10002: "the limits of the account are reached",
    10023: "the server has no more storage for JetStream (max_file_store, or its disk is full)",
    10028: "the server has no more memory for JetStream",
    10047: "the server has no more storage for JetStream (max_file_store, or its disk is full)",
    10122: "stream_max_bytes is more than the account may use",
}
"""JetStream's error codes for exhausted resources (its ``errors.json``)."""

STORE_FAILED = 10077
"""JetStream's error code for a message that its store rejected, for any reason."""

_DISK = re.compile(r"no space left|quota exceeded|input/output error|read-only file|too large")
_LIMIT = re.compile(r"maximum (?:bytes|messages)")

CURE = (
    "free space below its store_dir, then restart nats-server: after an error of its disk it goes "
    "on refusing until then"
)


def explain(error: Exception, doing: str) -> UnavailableError | DeniedError:
    """Translate an error of the client; `doing` names the failed operation."""
    import nats.errors
    import nats.js.errors

    if isinstance(error, nats.js.errors.APIError):
        if error.code in (401, 403):
            return DeniedError(f"{doing}: {error.description}")
        if reason := storage_problem(error.err_code, error.description or ""):
            return UnavailableError(f"{doing}: {reason}")
    text = str(error) or type(error).__name__
    if isinstance(error, nats.js.errors.ServiceUnavailableError) and error.description:
        text = error.description
    elif isinstance(error, nats.js.errors.ServiceUnavailableError | nats.errors.NoRespondersError):
        text = "JetStream does not answer; is it on? (else set bus.jetstream = false)"
    elif isinstance(error, nats.js.errors.NoStreamResponseError):
        text = "no stream keeps this subject yet"
    elif isinstance(error, TimeoutError | nats.errors.TimeoutError):
        text = "the server did not answer in time"
    elif isinstance(error, nats.js.errors.APIError) and error.description:
        text = error.description
    return UnavailableError(f"{doing}: {text}")


def storage_problem(code: int | None, description: str) -> str:
    """Describe which resource of the server is exhausted, and the remedy; empty if none."""
    if _DISK.search(description):
        return f"the disk of JetStream fails ({description}): {CURE}"
    if code == STORE_FAILED and _LIMIT.search(description):
        return (
            f'the stream is full and refuses what is new ({description}; stream_discard = "new"): '
            "let the bridges catch up, or raise stream_max_bytes and type `ccpipe streams apply`"
        )
    if code == STORE_FAILED:
        return f"JetStream cannot store messages ({description}): see the server's log; {CURE}"
    if code in FULL:
        return f"{FULL[code]} ({description}): see `ccpipe streams show`, raise the limit or {CURE}"
    return ""


_REFUSED = r'(?i)Permissions Violation for (Publish|Subscription) to "(.*?)"'


class ForbiddenError(RejectedError):
    """The server does not permit us to publish on some subjects: retrying is pointless."""

    def __init__(self, subjects: Collection[str], indices: Sequence[int] | None = None) -> None:
        self.subjects = frozenset(subjects)
        names = ", ".join(sorted(self.subjects))
        super().__init__(f"the server does not permit us to publish on {names}", indices)


class Permissions:
    """The permission errors of one connection."""

    def __init__(self) -> None:
        self._watching: list[tuple[Collection[str], Callable[[str], None]]] = []
        self._probed: set[str] = set()  # patterns of subjects whose refusal is an expected answer
        self._inbox = ""  # subjects that we may not subscribe to
        self._subscribing: Callable[[str], None] | None = None

    def report(self, text: str, inbox_prefix: str) -> bool:
        """Record a permission error; return whether the error is one."""
        if (found := re.search(_REFUSED, text)) is None:
            return True
        what, subject = found[1].lower(), found[2]
        if what == "publish":
            for patterns, refuse in self._watching.copy():
                if any(matches(pattern, subject) for pattern in patterns):
                    refuse(subject)
            return not any(matches(pattern, subject) for pattern in self._probed)
        if subject.startswith(f"{inbox_prefix}."):
            self._inbox = subject
        elif self._subscribing is not None:
            self._subscribing(subject)
            return False
        return True

    def forget(self) -> None:
        self._inbox = ""

    def require_replies(self) -> None:
        """Raise DeniedError if the server does not permit us to receive replies."""
        if self._inbox:
            raise DeniedError(
                f"the server does not permit us to subscribe to {self._inbox}, so no publish "
                "can be acknowledged: allow it for this user"
            )

    @contextlib.asynccontextmanager
    async def replying(self, pattern: str, *, probe: bool = False) -> AsyncIterator[None]:
        """Publish on subjects and wait for replies; raises ForbiddenError once one is refused.

        With `probe`, the purpose is to find out what is permitted: a refusal is neither logged nor
        counted.
        """
        limit = asyncio.timeout(None)
        refused: set[str] = set()

        def refuse(subject: str) -> None:
            refused.add(subject)
            limit.reschedule(asyncio.get_running_loop().time())

        if probe:
            self._probed.add(pattern)
        try:
            with self.watching([pattern], refuse):
                async with limit:
                    yield
        except TimeoutError:
            if not refused:
                raise
        finally:
            self._probed.discard(pattern)
        if refused:
            raise ForbiddenError(refused)

    @contextlib.contextmanager
    def subscribing(self, refuse: Callable[[str], None]) -> Iterator[None]:
        """Find out what may be subscribed to; `refuse` is called with each refused subject.

        A refusal is then neither logged nor counted.
        """
        self._subscribing = refuse
        try:
            yield
        finally:
            self._subscribing = None

    @contextlib.contextmanager
    def publishing(self, subjects: Collection[str]) -> Iterator[None]:
        """Publish; raises ForbiddenError at the end for the refused subjects."""
        refused: set[str] = set()
        with self.watching(subjects, refused.add):
            yield
        if refused:
            raise ForbiddenError(refused)

    @contextlib.contextmanager
    def watching(self, subjects: Collection[str], refuse: Callable[[str], None]) -> Iterator[None]:
        """Publish; `refuse` is called with each subject refused meanwhile.

        `subjects` may have wildcards.
        """
        watching = subjects, refuse
        self._watching.append(watching)
        try:
            yield
        finally:
            self._watching.remove(watching)
