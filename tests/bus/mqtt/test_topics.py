"""Topics and subjects name the same things."""

from hypothesis import given
from hypothesis import strategies as st

from ccpipe.bus.mqtt.topics import filter_of, latest_topic, topic_of
from ccpipe.bus.subjects import escape, matches
from ccpipe.message import metric

tokens = st.text(min_size=1, max_size=6).map(escape)


def test_a_token_is_a_level() -> None:
    """Dots become slashes, wildcards their counterparts; a prefix stands before."""
    assert topic_of("fox%2Etest.metrics") == "fox%2Etest/metrics"
    assert topic_of("fox.events.job", "hpc/site/") == "hpc/site/fox/events/job"
    assert filter_of("*.metrics.*", "hpc") == "hpc/+/metrics/+"
    assert filter_of("fox.>") == "fox/+/#"


@given(st.lists(tokens, min_size=1, max_size=4), st.lists(tokens | st.just("*"), max_size=4))
def test_a_filter_matches_the_topics_of_the_subjects(
    subject: list[str], pattern: list[str]
) -> None:
    """Whatever names hold, a filter takes a topic where its pattern takes the subject."""
    from paho.mqtt.client import topic_matches_sub

    for each in (".".join(pattern or ["*"]), ".".join([*pattern, ">"])):
        wanted = matches(each, ".".join(subject))
        topic = topic_of(".".join(subject))
        assert not set(topic) & set("+#")
        assert topic_matches_sub(filter_of(each), topic) == wanted


def test_the_latest_value_has_a_topic_for_each_series() -> None:
    """The node needs no levels of its own; a core, a device within one have."""
    tags = {"cluster": "fox.no", "hostname": "n1", "type": "node"}
    core = tags | {"type": "core", "type-id": "3"}
    device = tags | {"stype": "device", "stype-id": "sd/a+"}
    names = [
        latest_topic(metric("m", 1.0, time=1, tags=each), "x") for each in (tags, core, device)
    ]
    assert names == [
        "fox%2Eno/latest/n1/m",
        "fox%2Eno/latest/n1/m/core/3",
        "fox%2Eno/latest/n1/m/device/sd%2Fa%2B",
    ]
