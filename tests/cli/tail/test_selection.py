"""The subjects and filters of ``tail``: which lines, envelopes and dead letters are shown."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.cli.tail.options import Kind, Options
from ccpipe.cli.tail.selection import JobNodes, MessageFilter, patterns_of
from ccpipe.config import Bus, Site
from ccpipe.errors import UsageError
from ccpipe.formats.lineprotocol import decode, to_lines
from ccpipe.message import Message
from ccpipe.message import event as make_event

NOON = 1_740_052_800 * 10**9
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
)

LINES = decode(
    b"""\
load,cluster=fox,hostname=e1 value=1 1740027951
load,cluster=elk,hostname=e2 value=2 1740027951
temp,hostname=e3 value=3 1740027951
power,cluster=fox,hostname=e9,stype=job,stype-id=7 value=4 1740027951
"""
)


def names(options: Options, *, subject: str = "fox.metrics", of_cluster: str = "") -> list[str]:
    selection = MessageFilter(options, [of_cluster] if of_cluster else [])
    return [message.hostname for message in selection.lines(subject, LINES)]


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        (Options(), ["e1", "e2", "e3", "e9"]),
        (Options(node=["e[1-2]"]), ["e1", "e2"]),
        (Options(name=["t*"], node=["e*"]), ["e3"]),
        (Options(cluster=["fox"]), ["e1", "e9"]),
        (Options(kind=["event"]), []),
        (Options(kind=["sonar"]), []),
        (Options(job=[7]), ["e9"]),
    ],
)
def test_each_filter_must_match(options: Options, shown: list[str]) -> None:
    """One of its values is enough; a job's lines are those with its tag and from its nodes."""
    assert names(options) == shown


def test_lines_on_subject_of_cluster_need_no_tag() -> None:
    """The subject has the cluster's name."""
    assert names(Options(cluster=["fox"]), of_cluster="fox.metrics") == ["e1", "e2", "e3", "e9"]
    assert names(Options(cluster=["fox"]), of_cluster="fox.log.*") == ["e1", "e9"]


def test_nodes_of_job_are_shown_from_its_start() -> None:
    """The start is shown, too; before it the nodes are unknown."""
    selection = MessageFilter(Options(job=[5]), [])
    text = json.dumps(json.dumps({"jobId": 5, "resources": [{"hostname": "e3"}]}))
    start = f"job,cluster=fox,function=start_job,hostname=a event={text} 1740027951\n"
    assert len(selection.lines("fox.metrics", LINES)) == 0
    assert len(selection.lines("fox.events.job", decode(start.encode()))) == 1
    assert [m.hostname for m in selection.lines("fox.metrics", LINES)] == ["e3"]


def envelope(**attributes: object) -> dict[str, object]:
    return {"data": {"type": "sample", "attributes": attributes}}


def test_envelopes_are_filtered_by_cluster_node_type_and_job() -> None:
    """Like lines."""
    sample = envelope(cluster="fox", node="e1", jobs=[{"job": 7, "user": "ann"}])

    def shows(options: Options) -> bool:
        return MessageFilter(options, []).envelope(sample)

    assert shows(Options())
    assert shows(Options(node=["e1"], name=["sam*"], cluster=["f?x"], job=[7]))
    assert shows(Options(user=["ann"]))
    for wrong in (
        Options(node=["e2"]), Options(name=["job"]), Options(cluster=["elk"]), Options(job=[8]),
        Options(kind=["metric"]), Options(user=["eve"]),
    ):  # fmt: skip
        assert not shows(wrong)


def test_dead_letters_match_no_filter_of_nodes_or_names() -> None:
    assert MessageFilter(Options(), []).has_dead_letters
    assert MessageFilter(Options(kind=["dead"], cluster=["fox"]), []).has_dead_letters
    for options in (
        Options(node=["e1"]), Options(name=["x"]), Options(kind=["metric"]), Options(user=["a"]),
    ):  # fmt: skip
        assert not MessageFilter(options, []).has_dead_letters


def test_subjects_follow_kinds_and_clusters() -> None:
    """Named clusters have their own subjects; a pattern, or a flat subject, needs the tag."""
    site = Site(cluster="x")

    def found(*kinds: Kind, clusters: list[str]) -> tuple[list[str], list[str]]:
        return patterns_of(site, Options(kind=[*kinds], cluster=clusters))

    assert found("log", clusters=[]) == (["*.log.*"], [])
    assert found("log", clusters=["a", "b.c"]) == (
        ["a.log.*", "b%2Ec.log.*"], ["a.log.*", "b%2Ec.log.*"],
    )  # fmt: skip
    assert found("log", clusters=["a", "b*"]) == (["*.log.*"], [])
    assert found("metric", "other", clusters=[])[0] == ["*.metrics", "*.metrics.*"]
    assert len(found(clusters=[])[0]) == 7
    site = Site(cluster="x", bus=Bus(subjects={"log": "hpc-nats"}))
    assert found("log", clusters=["a"]) == (["hpc-nats"], [])


@pytest.mark.parametrize("subject", ["", "a..b", ".a", "a b"])
def test_invalid_subject_is_rejected(subject: str) -> None:
    """Otherwise nothing would arrive, without a reason."""
    with pytest.raises(UsageError, match="not a subject"):
        patterns_of(Site(), Options(subject=[subject]))


def owned(function: str, job: int, user: str = "", *nodes: str) -> str:
    given = {"jobId": job, "user": user, "resources": [{"hostname": node} for node in nodes]}
    if function == "stop_job":
        given = {"jobId": job, "startTime": 5, "stopTime": 9, "jobState": "completed"}
    text = json.dumps(json.dumps({"startTime": 5} | given))
    return f"job,cluster=fox,function={function},hostname=a event={text} 1740027951\n"


def test_user_option_shows_nodes_of_jobs_that_run_and_their_events() -> None:
    """A node belongs to its owner from the start to the stop of the job; other owners' do not."""
    selection = MessageFilter(Options(user=["ann", "b*"]), [])

    def shows(*events: str) -> list[str]:
        lines = decode("".join(events).encode())
        return [str(m.tags.get("function")) for m in selection.lines("fox.events.job", lines)]

    def nodes() -> list[str]:
        return [m.hostname for m in selection.lines("fox.metrics", LINES)]

    assert nodes() == []
    assert shows(owned("start_job", 5, "ann", "e1", "e3")) == ["start_job"]
    assert shows(owned("start_job", 6, "eve", "e2"), owned("stop_job", 6)) == []
    assert shows(owned("start_job", 7, "bob", "e3")) == ["start_job"]
    assert nodes() == ["e1", "e3", "e9"]  # the last has the tag of job 7
    assert shows(owned("stop_job", 5)) == ["stop_job"]
    assert shows(owned("start_job", 5, "ann", "e1", "e3")) == ["start_job"]  # repeated
    assert nodes() == ["e3", "e9"]
    assert shows(owned("stop_job", 7)) == ["stop_job"]
    assert nodes() == []


def test_owner_and_id_of_job_must_both_match() -> None:
    selection = MessageFilter(Options(user=["ann"], job=[5]), [])
    for job, user, count in ((5, "eve", 0), (6, "ann", 0), (5, "ann", 1)):
        event = owned("start_job", job, user, "e1")
        assert len(selection.lines("fox.events.job", decode(event.encode()))) == count


def test_jobs_are_followed_when_only_metrics_are_shown() -> None:
    """Events are received, and not shown."""
    for options in (Options(user=["ann"], kind=["metric"]), Options(job=[5], kind=["metric"])):
        assert patterns_of(Site(cluster="x"), options)[0][-1] == "*.events.*"
        selection = MessageFilter(options, [])
        event = decode(owned("start_job", 5, "ann", "e1").encode())
        assert len(selection.lines("fox.events.job", event)) == 0
        assert [m.hostname for m in selection.lines("fox.metrics", LINES)] == ["e1"]


def event(name: str, function: str, text: str, *, time: int) -> Message:
    return make_event(name, function, text, time=time, tags={})


def start(job: int, *nodes: str) -> str:
    return json.dumps({"jobId": job, "resources": [{"hostname": node} for node in nodes]})


def test_start_event_gives_nodes_of_watched_job() -> None:
    """Other jobs and other events are ignored."""
    jobs = JobNodes([7])
    assert jobs.add_event(event("job", "start_job", start(7, "e1", "e3"), time=NOON))
    assert not jobs.add_event(event("job", "start_job", start(8, "e2"), time=NOON))
    assert not jobs.add_event(event("node", "start_job", start(7, "e4"), time=NOON))
    assert jobs.nodes == {"e1", "e3"}


@pytest.mark.parametrize("key", ["slurm_jobs", "jobs"])
def test_envelopes_give_nodes_of_job(key: str) -> None:
    """Slurm's node list is expanded; a sample gives the node that sent it."""
    jobs = JobNodes([7])
    assert jobs.add_attributes({key: [{"job_id": 7, "nodes": ["e[1-2]", "f1"]}]})
    assert jobs.nodes == {"e1", "e2", "f1"}
    sample = {"node": "g9", key: [{"job": 7}]}
    assert jobs.add_attributes(sample)
    assert "g9" in jobs.nodes
    assert not jobs.add_attributes({"node": "h1", key: [{"job": 8}]})
    assert "h1" not in jobs.nodes


@given(st.text() | JSON.map(json.dumps))
def test_any_text_of_event_is_accepted(text: str) -> None:
    """Malformed events are ignored."""
    jobs = JobNodes([7])
    assert jobs.add_event(event("job", "start_job", text, time=NOON)) in (True, False)


@given(
    st.dictionaries(st.sampled_from(["jobs", "slurm_jobs", "node", "x"]), JSON),
    st.lists(st.dictionaries(st.sampled_from(["job", "job_id", "nodes"]), JSON), max_size=3),
)
def test_any_attributes_of_envelope_are_accepted(
    attributes: dict[str, Any], records: list[dict[str, Any]]
) -> None:
    jobs = JobNodes([0, 1])
    jobs.add_attributes(attributes)
    jobs.add_attributes({**attributes, "jobs": records})
    assert all(jobs.nodes)


def test_user_and_job_options_show_pending_jobs() -> None:
    payload = json.dumps({"cluster": "c", "user": "ann", "pending": [{"jobId": 5}]})
    tags = {"cluster": "c", "hostname": "c"}
    lines = to_lines([make_event("jobpending", "jobpending", payload, time=1, tags=tags)])
    for options, count in (
        (Options(user=["ann"]), 1), (Options(user=["eve"]), 0), (Options(job=[5]), 1),
        (Options(job=[6]), 0), (Options(user=["ann"], job=[6]), 0),
    ):  # fmt: skip
        assert len(MessageFilter(options, []).lines("c.events.jobpending", lines)) == count
