"""Who may see what in the dashboard.

The server refuses a handler without a rule. A rule is a decorator::

    @requires(Role.USER)
    async def jobs(self, request: web.Request) -> web.Response:
        viewer = current_viewer()
        shown = [job for job in found if viewer.may_see(job)]

``@requires(Role.SUPPORT)`` refuses users with status 403; ``@public`` answers anybody. A handler
that reads the history of nodes calls `Viewer.check_history` before it reads anything, and one that
shows a single job answers for a job that the viewer may not see as for one that does not exist.
A `AccessError` becomes status 403. Views have the same rule as an attribute, ``minimum_role``.
"""

import enum
import math
from collections.abc import Callable, Iterable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, TypeVar

from ccpipe.errors import DeniedError
from ccpipe.jobs import Job
from ccpipe.live.state import Entry

SECOND = 10**9
MIN_SUMMED_NODES = 4
"""Number of nodes of which a user may see the history of sums: of fewer it tells of the nodes."""
TOLERANCE = 1.0
"""Seconds by which a query may exceed a job, as pages round its times."""
H = TypeVar("H", bound=Callable[..., Any])


class AccessError(DeniedError):
    """The viewer, or the page that sends a request, may not do this."""


class Role(enum.IntEnum):
    """What a viewer may see; each role includes the ones before."""

    PUBLIC = 0
    """Page files and the health check, without signing in."""
    USER = 1
    """His own jobs, and the state of the nodes."""
    SUPPORT = 2
    """All jobs, nodes and events."""
    ADMIN = 3
    """Log messages, dead letters and streams, too."""

    @classmethod
    def named(cls, name: str) -> "Role":
        """Return the role of a viewer by its name in lower case; raises ValueError."""
        for role in (cls.USER, cls.SUPPORT, cls.ADMIN):
            if role.name.lower() == name:
                return role
        raise ValueError(f"not a role: {name!r:.40} (one of user, support, admin)")


@dataclass(frozen=True, slots=True)
class Viewer:
    """The person, or the program, that looks at the dashboard."""

    user: str
    """Name as in the jobs of the scheduler; empty if unknown."""
    role: Role

    @property
    def sees_all(self) -> bool:
        """Whether the jobs of other users are shown."""
        return self.role >= Role.SUPPORT

    def may_see(self, job: Job) -> bool:
        return self.sees_all or (bool(self.user) and job.user == self.user)

    def may_see_entry(self, entry: Entry) -> bool:
        """Return whether an event or a log message is shown."""
        if self.role >= Role.ADMIN:
            return True
        if entry.kind != "event":
            return False
        return self.sees_all or (bool(self.user) and entry.user == self.user)

    def check_history(
        self, jobs: Iterable[Job], *, cluster: str, nodes: Sequence[str], start: float, stop: float
    ) -> None:
        """Raise AccessError unless the viewer may see nodes in a time (seconds).

        A user may see a node only while one of `jobs` that is his own had it; `jobs` may contain
        jobs of others, which are ignored.
        """
        if self.sees_all:
            return
        allowed: set[str] = set()
        for job in jobs:
            end = job.end / SECOND if job.end else math.inf
            is_within = job.start / SECOND - TOLERANCE <= start and stop <= end + TOLERANCE
            if job.cluster == cluster and job.start and is_within and self.may_see(job):
                allowed.update(node.hostname for node in job.nodes)
        if not allowed.issuperset(nodes):
            raise AccessError("only the nodes of your own jobs, from their start to their end")

    def check_sums(self, nodes: int) -> None:
        """Raise AccessError unless the viewer may see the history of sums over so many nodes."""
        if not self.sees_all and nodes < MIN_SUMMED_NODES:
            raise AccessError(f"history of fewer than {MIN_SUMMED_NODES} nodes is not for users")


_viewer: ContextVar[Viewer] = ContextVar("viewer")

EVERYTHING = Viewer(user="", role=Role.ADMIN)
"""Who looks at a dashboard without access control."""


def requires(role: Role) -> Callable[[H], H]:
    """Let a handler answer viewers with at least this role."""

    def mark(handler: H) -> H:
        handler.minimum_role = role  # type: ignore[attr-defined] # it is a function
        return handler

    return mark


public = requires(Role.PUBLIC)
"""Let a handler answer anybody."""


def role_required_by(handler: object) -> Role:
    """Return the least role for a handler or a view; raises AccessError if it has no rule."""
    role = getattr(handler, "minimum_role", None)
    if not isinstance(role, Role):
        raise AccessError("nobody may see this")
    return role


def check_role(viewer: Viewer, required: Role) -> None:
    """Raise AccessError if a viewer has a lower role than required."""
    if viewer.role < required:
        raise AccessError(f"this is for the role {required.name.lower()}")


def set_viewer(viewer: Viewer) -> None:
    """Set who sends the request that the current task handles."""
    _viewer.set(viewer)


def current_viewer() -> Viewer:
    """Return who sends the request that the current task handles; not for public handlers."""
    return _viewer.get()
