"""Reading the state of JetStream's streams and consumers, on a real broker."""

import contextlib
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nats.js import api

from ccpipe.bus.nats.streams.jetstream import (
    Consumer,
    Stream,
    StreamState,
    _read,
    age_of_newest,
    call,
    consumer_of,
    consumers_of,
    names_of,
    stream_of,
)
from ccpipe.bus.nats.streams.stream import ensure_stream
from ccpipe.bus.subjects import Subjects
from ccpipe.config import Site
from ccpipe.errors import UnavailableError
from tests.bus.nats.conftest import connected

THEN = datetime(2026, 1, 1, tzinfo=UTC)


def made(*, span: float = 100, messages: int = 10, size: int = 1000, **config: Any) -> Stream:
    state = StreamState(
        messages=messages, bytes=size, first_seq=1, last_seq=messages,
        first_ts=THEN, last_ts=THEN + timedelta(seconds=span),
    )  # fmt: skip
    return Stream(config={"name": "s", **config}, state=state, ts=THEN + timedelta(seconds=span))


async def test_age_is_taken_from_newest_message_of_all_patterns(site: Site) -> None:
    """Wildcards are supported; a subject without a message, or without a stream, has no age."""
    subjects = Subjects.of(site)
    patterns = subjects.patterns(["metrics"])
    base = patterns[0]
    async with connected(site.bus) as bus:
        jetstream = bus.jetstream()
        assert await age_of_newest(jetstream, patterns) is None
        await ensure_stream(jetstream, site.bus, subjects, patterns)
        assert await age_of_newest(jetstream, patterns) is None
        await jetstream.publish(f"{base}.n1", b"x value=1")
        age = await age_of_newest(jetstream, patterns)
        assert age is not None
        assert age >= 0
        assert await age_of_newest(jetstream, [f"{base}.n1"]) is not None
        assert await age_of_newest(jetstream, [f"{base}.n2"]) is None
        assert await age_of_newest(jetstream, [base]) is None


async def test_stream_and_consumers_are_read(site: Site) -> None:
    """For a missing stream or consumer None is returned."""
    async with connected(site.bus) as bus:
        jetstream = bus.jetstream()
        await jetstream.add_stream(name="s", subjects=["a.>"], max_bytes=2000)
        assert await names_of(jetstream, "a.*") == ["s"]
        assert await names_of(jetstream, "b.*") == []
        for _ in range(50):
            await jetstream.publish("a.b", b"x" * 100)
        await jetstream.add_consumer("s", api.ConsumerConfig(durable_name="c"))
        stream = await stream_of(jetstream, "s")
        consumer = await consumer_of(jetstream, "s", "c")
        assert stream is not None
        assert consumer is not None
        assert (stream.subjects, stream.max_bytes, stream.max_age) == (["a.>"], 2000, None)
        assert [each.name async for each in consumers_of(jetstream, "s")] == ["c"]
        assert consumer.num_pending == stream.state.messages < 50
        assert consumer.dropped(stream) == 0  # it was not there when they were deleted
        assert consumer.subjects == []
        assert await stream_of(jetstream, "none") is None
        assert await consumer_of(jetstream, "s", "none") is None


async def test_refused_request_names_attempted_operation(site: Site) -> None:
    async with connected(site.bus) as bus:
        with pytest.raises(UnavailableError, match="changing x: stream not found"):
            await call(bus.jetstream(), "STREAM.UPDATE.x", {"name": "x"}, "changing x")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@given(json_values | st.fixed_dictionaries({"config": json_values, "state": json_values}))
def test_invalid_response_is_unavailable(answer: object) -> None:
    """As from a broker of another version, or from another program."""
    for kind in (Stream, Consumer):
        with contextlib.suppress(UnavailableError):
            assert isinstance(_read(answer, kind, "x"), kind)


def test_headroom_is_stricter_of_both_limits() -> None:
    """At the rate until now; None if nothing limits it."""
    second = 10**9
    assert made(max_bytes=5000).rate == 10
    assert made(max_bytes=5000).headroom == 500
    assert made(max_bytes=5000, max_age=60 * second).headroom == 60
    assert made(max_age=60 * second).headroom == 60
    assert made().headroom is None
    assert made(max_bytes=5000, messages=1).headroom is None
    assert made(messages=0).age == 0
    assert made().age == 100
