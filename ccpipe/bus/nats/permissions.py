"""Permission errors of the server, reported to the waiting sender.

The server answers a forbidden publish with an error for the connection, not with a reply: a sender
that only waits for a reply would time out and retry forever.
"""

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Sequence

from ccpipe.bus.subjects import matches
from ccpipe.errors import DeniedError, RejectedError

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
        self._watching: dict[str, list[Callable[[str], None]]] = {}
        self._asked: set[str] = set()  # patterns of subjects whose refusal is an expected answer
        self._inbox = ""  # subjects that we may not subscribe to

    def report(self, text: str, inbox_prefix: str) -> bool:
        """Record a permission error; return whether the error is one."""
        if (found := re.search(_REFUSED, text)) is None:
            return True
        what, subject = found[1].lower(), found[2]
        if what == "publish":
            watching = [
                refuse
                for pattern, those in self._watching.items()
                if matches(pattern, subject)
                for refuse in those
            ]
            for refuse in watching:
                refuse(subject)
            return not any(matches(pattern, subject) for pattern in self._asked)
        if subject.startswith(f"{inbox_prefix}."):
            self._inbox = subject
        return True

    def forget(self) -> None:
        self._inbox = ""

    def require_replies(self) -> None:
        """Raise DeniedError if the server does not permit us to receive replies."""
        if self._inbox:
            raise DeniedError(
                f"the server does not permit us to subscribe to {self._inbox}, so that nothing we "
                "publish is ever confirmed: allow it for this user"
            )

    @contextlib.asynccontextmanager
    async def replying(self, pattern: str, *, asks: bool = False) -> AsyncIterator[None]:
        """Publish on subjects and wait for replies; raises ForbiddenError once one is refused.

        With `asks`, the purpose is to find out what is permitted: a refusal is neither logged nor
        counted.
        """
        limit = asyncio.timeout(None)
        refused: set[str] = set()

        def refuse(subject: str) -> None:
            refused.add(subject)
            limit.reschedule(asyncio.get_running_loop().time())

        if asks:
            self._asked.add(pattern)
        try:
            with self.watching([pattern], refuse):
                async with limit:
                    yield
        except TimeoutError:
            if not refused:
                raise
        finally:
            self._asked.discard(pattern)
        if refused:
            raise ForbiddenError(refused)

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
        for subject in subjects:
            self._watching.setdefault(subject, []).append(refuse)
        try:
            yield
        finally:
            for subject in subjects:
                others = self._watching[subject]
                others.remove(refuse)
                if not others:
                    del self._watching[subject]
