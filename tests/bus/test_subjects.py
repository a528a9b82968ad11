"""Subjects: building, escaping, matching, and what a site may change."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.bus.nats.control_requests import control_request
from ccpipe.bus.subjects import Subjects, escape, matches
from ccpipe.config import Bus, Site
from ccpipe.errors import ConfigError, EncodeError
from ccpipe.message import Message, event, log, metric

TAGS = {"hostname": "n1", "type": "node"}


def subjects(cluster: str = "fritz", **templates: str | dict[str, str]) -> Subjects:
    return Subjects.of(Site(cluster=cluster, bus=Bus(subjects=templates)))


@pytest.mark.parametrize(
    ("message", "subject"),
    [
        (metric("cpu_load", 1.0, time=0, tags=TAGS), "fritz.metrics"),
        (event("job", "start_job", "{}", time=0, tags=TAGS), "fritz.events.job"),
        (log("ccb", "info", "x", time=0, tags=TAGS), "fritz.log.ccb"),
        (control_request("rapl"), "fritz.control.get"),
        (control_request("rapl", value="x"), "fritz.control.put"),
        (Message("Tasks", TAGS, 1, 0, "CPUTime"), "fritz.metrics"),
    ],
)
def test_each_kind_has_subject_of_specification(message: Message, subject: str) -> None:
    """The defaults are the tree of *Messaging subjects*."""
    assert subjects().of_message(message) == subject


def test_cluster_tag_takes_precedence_over_configured_cluster() -> None:
    """A message with a cluster tag is published under that name, by any publisher."""
    message = metric("m", 1, time=0, tags={**TAGS, "cluster": "alex"})
    assert subjects().of_message(message) == "alex.metrics"


START = event("job", "start_job", "{}", time=0, tags=TAGS)
STATE = event("nodestate", "nodestate", "{}", time=0, tags=TAGS)
OTHER = event("sonar", "sample", "{}", time=0, tags=TAGS)


def test_event_classes_may_have_their_own_subjects() -> None:
    """The others keep the template of all events; a subscriber to events receives all."""
    own = subjects(events={"job": "cc.job.event", "nodestate": "cc.node.state"})
    assert own.of_message(START) == "cc.job.event"
    assert own.of_message(STATE) == "cc.node.state"
    assert own.of_message(OTHER) == "fritz.events.sonar"
    assert own.patterns(["events"]) == ["fritz.events.*", "cc.job.event", "cc.node.state"]
    assert own.patterns(["events.job", "events.sonar"]) == ["cc.job.event", "fritz.events.sonar"]
    assert subjects().patterns(["events.job"]) == ["fritz.events.job"]
    rest = subjects(events={"job": "cc.job.event", "*": "cc.{name}"})
    assert [rest.of_message(each) for each in (START, OTHER)] == ["cc.job.event", "cc.sonar"]
    flat = subjects(**{"events": "cc.{name}", "events.job": "cc.job.event"})
    assert [flat.of_message(each) for each in (START, OTHER)] == ["cc.job.event", "cc.sonar"]


def test_event_subject_may_contain_function() -> None:
    """An event without a function then has no subject."""
    own = subjects(events={"job": "cc.job.{function}"})
    assert own.of_message(START) == "cc.job.start_job"
    assert own.patterns(["events"]) == ["fritz.events.*", "cc.job.*"]
    with pytest.raises(EncodeError, match="event message 'job' has no tag function"):
        own.of_message(Message("job", TAGS, "{}", 0, "event"))


def test_sink_may_have_its_own_subjects() -> None:
    site = Site(cluster="fritz", bus=Bus(subjects={"metrics": "a", "log": "b"}))
    own = Subjects.of(site, {"metrics": "hpc-nats"})
    assert (own.templates["metrics"], own.templates["log"]) == ("hpc-nats", "b")


def test_control_message_without_method_has_no_subject() -> None:
    """Only the record whose subject cannot be built is at fault."""
    with pytest.raises(EncodeError, match="no tag method"):
        subjects().of_message(Message("rapl", TAGS, "x", 0, "control"))


@given(st.text())
def test_escaped_name_is_one_token(name: str) -> None:
    """Any cluster name is one token without wildcards."""
    token = escape(name)
    assert token
    assert not re.search(r"[\s.*>]", token)


@given(st.text(min_size=1), st.text(min_size=1))
def test_escaped_names_stay_distinct(one: str, other: str) -> None:
    """Two clusters never share a subject."""
    assert (escape(one) == escape(other)) == (one == other)


def test_patterns_match_published_subjects() -> None:
    """A subscriber to a category receives every message of it, of any cluster."""
    own = subjects("fox.educloud.no")
    messages = {
        "metrics": metric("cpu_load", 1.0, time=0, tags=TAGS),
        "events": event("job", "start_job", "{}", time=0, tags=TAGS),
        "log": log("ccb", "info", "x", time=0, tags=TAGS),
        "control": control_request("rapl"),
    }
    for name, message in messages.items():
        for cluster in (None, "*"):
            patterns = own.patterns([name], cluster)
            assert any(matches(pattern, own.of_message(message)) for pattern in patterns)
    assert own.patterns(["metrics"], "*") == ["*.metrics", "*.metrics.*"]


def test_unknown_name_is_literal_subject() -> None:
    """A recipe may subscribe to any subject, such as a site's flat one."""
    assert subjects().patterns(["hpc-nats", "dead"]) == ["hpc-nats", "fritz.dead"]
    assert subjects().patterns(["events.>"]) == ["events.>"]


@pytest.mark.parametrize(
    ("pattern", "subject", "expected"),
    [
        ("a.b", "a.b", True),
        ("a.*", "a.b", True),
        ("a.*", "a.b.c", False),
        ("a.>", "a.b.c", True),
        ("a.>", "a", False),
        ("*.*", "a", False),
        ("a.b", "a.c", False),
        (">", "a", True),
    ],
)
def test_wildcards_match_as_in_broker(pattern: str, subject: str, expected: bool) -> None:
    """``*`` is one token, ``>`` one or more at the end."""
    assert matches(pattern, subject) is expected


@pytest.mark.parametrize(
    ("name", "template", "says"),
    [
        ("metric", "x", "did you mean 'metrics'"),
        ("x", "x", "unknown; known are metrics, events, log"),
        ("metrics", "{clster}.metrics", "unknown placeholder {clster}"),
        ("metrics", "{cluster.metrics", "bus.subjects.metrics"),
        ("metrics", "a b", "is not a subject"),
        ("metrics", "a..b", "is not a subject"),
        ("metrics", "a.*", "is not a subject"),
        ("metrics", "", "is not a subject"),
        ("metrics", "x.{function}", "unknown placeholder {function}"),
        ("events", {"job": "a b"}, "bus.subjects.events.job: 'a b' is not a subject"),
        ("events", {"": "a"}, "did you mean 'events'"),
        ("metrics", {"cpu_load": "a"}, "bus.subjects.metrics: expected a string"),
    ],
)
def test_invalid_template_is_refused_with_its_key(
    name: str, template: str | dict[str, str], says: str
) -> None:
    """Invalid configuration fails before start, with the key path and a suggestion."""
    with pytest.raises(ConfigError, match="bus.subjects") as caught:
        Subjects.of(Site(bus=Bus(subjects={name: template})))
    assert says in str(caught.value)
