"""Roles, and the rules of handlers and views."""

from contextvars import Context
from typing import get_args

import pytest

from ccpipe.config import Site
from ccpipe.dashboard.access import (
    AccessError,
    Role,
    Viewer,
    check_role,
    current_viewer,
    role_required_by,
    set_viewer,
)  # fmt: skip
from ccpipe.dashboard.server import DashboardServer
from ccpipe.dashboard.views import VIEWS, PageView, Query, view_of
from ccpipe.jobs import Job, JobNode
from ccpipe.live.feed import LiveFeed
from ccpipe.live.state import Entry
from ccpipe.telemetry import Telemetry

ALICE = Viewer("alice", Role.USER)
HELEN = Viewer("helen", Role.SUPPORT)
ROOT = Viewer("root", Role.ADMIN)
NOBODY = Viewer("", Role.USER)

SECOND = 10**9
OF_ALICE = Job(
    cluster="c", id=1, user="alice", start=100 * SECOND, end=200 * SECOND,
    nodes=(JobNode("n1"), JobNode("n2")),
)  # fmt: skip
RUNNING = Job(cluster="c", id=2, user="alice", start=300 * SECOND, nodes=(JobNode("n1"),))
OF_BOB = Job(cluster="c", id=3, user="bob", start=100 * SECOND, nodes=(JobNode("n1"),))
WITHOUT_USER = Job(cluster="c", id=4, start=100 * SECOND, nodes=(JobNode("n1"),))
JOBS = (OF_ALICE, RUNNING, OF_BOB, WITHOUT_USER)


@pytest.fixture
def feed() -> LiveFeed:
    return LiveFeed(Site(), Telemetry(), name="dashboard")


def test_every_route_has_rule(feed: LiveFeed) -> None:
    """One without a rule is refused; only these are public."""
    app = DashboardServer(feed, listen="127.0.0.1:0").application()
    rules = {
        (route.method, route.resource.canonical): role_required_by(route.handler)
        for route in app.router.routes()
        if route.resource is not None
    }
    public = {path for (_, path), role in rules.items() if role == Role.PUBLIC}
    assert public == {"/health", "/ready", "/api/login", "/{path}"}
    assert ("GET", "/api/live") in rules


def test_every_view_has_rule() -> None:
    """None is public."""
    assert set(VIEWS) == set(get_args(Query))
    assert min(role_required_by(view) for view in VIEWS.values()) == Role.USER


def test_view_without_rule_is_refused(feed: LiveFeed, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even to an administrator."""
    monkeypatch.setattr(VIEWS[get_args(Query)[0]], "minimum_role", None)
    with pytest.raises(AccessError, match="nobody"):
        view_of(feed, '{"view": "overview"}', ROOT)
    assert PageView.minimum_role is None


def test_user_sees_own_jobs_only() -> None:
    """A viewer without a name sees no jobs, not even those without a user."""
    assert [job.id for job in JOBS if ALICE.may_see(job)] == [1, 2]
    assert not any(map(NOBODY.may_see, JOBS))
    assert all(map(HELEN.may_see, JOBS))
    assert all(map(ROOT.may_see, JOBS))


@pytest.mark.parametrize(
    ("viewer", "seen"),
    [(ALICE, ["alice's"]), (NOBODY, []), (HELEN, ["alice's", "bob's", "event"]),
     (ROOT, ["alice's", "bob's", "event", "log"])],
)  # fmt: skip
def test_log_messages_are_for_administrators(viewer: Viewer, seen: list[str]) -> None:
    """Support sees all events, a user those of own jobs."""
    entries = [
        Entry(1, 1.0, kind, "c", "n1", "job", "start_job", text, user)
        for kind, text, user in (
            ("event", "alice's", "alice"),
            ("event", "bob's", "bob"),
            ("event", "event", ""),
            ("log", "log", "alice"),
        )
    ]
    assert [entry.text for entry in entries if viewer.may_see_entry(entry)] == seen


@pytest.mark.parametrize(
    ("nodes", "start", "stop"),
    [
        (["n1"], 100, 200), (["n1", "n2"], 100, 200), (["n2"], 150, 160), (["n1"], 99.5, 200.5),
        (["n1"], 300, 10_000),
    ],
)  # fmt: skip
def test_user_may_query_nodes_of_own_job(nodes: list[str], start: float, stop: float) -> None:
    """From its start to its end, or without end while it runs."""
    ALICE.check_history(JOBS, cluster="c", nodes=nodes, start=start, stop=stop)


@pytest.mark.parametrize(
    ("viewer", "cluster", "nodes", "start", "stop"),
    [
        (ALICE, "c", ["n1"], 90, 200),
        (ALICE, "c", ["n1"], 100, 210),
        (ALICE, "c", ["n1"], 100, 400),
        (ALICE, "c", ["n1"], 210, 290),
        (ALICE, "c", ["n2"], 300, 400),
        (ALICE, "c", ["n1", "n3"], 100, 200),
        (ALICE, "d", ["n1"], 100, 200),
        (ALICE, "c", ["n1"], float("nan"), 200),
        (ALICE, "c", ["n1"], 100, float("nan")),
        (NOBODY, "c", ["n1"], 100, 200),
        (Viewer("eve", Role.USER), "c", ["n1"], 100, 200),
    ],
)
def test_user_may_not_query_other_nodes_or_times(
    viewer: Viewer, cluster: str, nodes: list[str], start: float, stop: float
) -> None:
    """Nor the time between two own jobs; support and administrators may."""
    query = {"cluster": cluster, "nodes": nodes, "start": start, "stop": stop}
    with pytest.raises(AccessError, match="your own jobs"):
        viewer.check_history(JOBS, **query)  # type: ignore[arg-type] # they are of these types
    HELEN.check_history((), **query)  # type: ignore[arg-type]


def test_role_includes_lower_ones() -> None:
    """The error names the role that is needed."""
    check_role(ROOT, Role.SUPPORT)
    check_role(ALICE, Role.USER)
    with pytest.raises(AccessError, match="role support"):
        check_role(ALICE, Role.SUPPORT)


@pytest.mark.parametrize("name", ["", "public", "root", "ADMIN", "0"])
def test_unknown_role_is_rejected(name: str) -> None:
    """There are three names."""
    with pytest.raises(ValueError, match="one of user, support, admin"):
        Role.named(name)


def test_viewer_is_known_after_sign_in_only() -> None:
    """A public handler has none."""

    def sign_in() -> None:
        with pytest.raises(LookupError):
            current_viewer()
        set_viewer(ALICE)
        assert current_viewer() == ALICE

    Context().run(sign_in)
