"""What the server does not permit us, reported to whoever waits for it.

The server answers a publish that it refuses with a line for the connection, not with a reply: who
waits for a reply would wait for nothing, and try again for ever.
"""

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Collection, Iterator, Sequence

from ccpipe.errors import DeniedError, RejectedError

_REFUSED = re.compile(r'Permissions Violation for (Publish|Subscription) to "(.*?)"', re.IGNORECASE)


class ForbiddenError(RejectedError):
    """The server does not permit us to publish on some subjects: trying again is pointless."""

    def __init__(self, subjects: Collection[str], indices: Sequence[int] | None = None) -> None:
        """Name the subjects, and the records that belong there where they are known."""
        self.subjects = frozenset(subjects)
        names = ", ".join(sorted(self.subjects))
        super().__init__(f"the server does not permit us to publish on {names}", indices)


class _Publishing:
    """Somebody who publishes, and what was refused meanwhile."""

    def __init__(self, limit: asyncio.Timeout | None) -> None:
        self.limit = limit
        self.refused: set[str] = set()

    def refuse(self, subject: str) -> None:
        if self.limit is not None and not self.refused:
            self.limit.reschedule(asyncio.get_running_loop().time())
        self.refused.add(subject)


class Permissions:
    """The refusals of one connection."""

    def __init__(self) -> None:
        """Begin without any."""
        self._publishing: dict[str, list[_Publishing]] = {}
        self._inbox = ""  # that the server does not let us subscribe to

    def report(self, text: str, inbox_prefix: str) -> None:
        """Take note of what the server says in an error."""
        if (found := _REFUSED.search(text)) is None:
            return
        what, subject = found[1].lower(), found[2]
        if what == "publish":
            for each in self._publishing.get(subject, ()):
                each.refuse(subject)
        elif subject.startswith(f"{inbox_prefix}."):
            self._inbox = subject

    def forget(self) -> None:
        """Begin anew, with a new connection."""
        self._inbox = ""

    def require_replies(self) -> None:
        """Raise DeniedError where the server does not let us hear its replies."""
        if self._inbox:
            raise DeniedError(
                f"the server does not permit us to subscribe to {self._inbox}, so that nothing we "
                "publish is ever confirmed: allow it for this user"
            )

    @contextlib.asynccontextmanager
    async def replying(self, subject: str) -> AsyncIterator[None]:
        """Publish and wait for the reply; raises ForbiddenError as soon as it is refused."""
        limit = asyncio.timeout(None)
        with self.publishing([subject], limit):
            async with limit:
                yield

    @contextlib.contextmanager
    def publishing(
        self, subjects: Collection[str], limit: asyncio.Timeout | None = None
    ) -> Iterator[None]:
        """Publish; raises ForbiddenError at the end for those of the subjects that were refused.

        The first refusal ends `limit`.
        """
        publishing = _Publishing(limit)
        for subject in subjects:
            self._publishing.setdefault(subject, []).append(publishing)
        try:
            yield
        except TimeoutError:
            if not publishing.refused:
                raise
        finally:
            for subject in subjects:
                others = self._publishing[subject]
                others.remove(publishing)
                if not others:
                    del self._publishing[subject]
        if publishing.refused:
            raise ForbiddenError(publishing.refused)
