"""Publishing into a stream: message ids, and what each refusal is called."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.bus.nats import store as module
from ccpipe.bus.nats.connection import Connection
from ccpipe.bus.nats.store import MESSAGE_ID, NoStreamError, digest, store
from ccpipe.config import Site
from ccpipe.errors import EncodeError, RejectedError, UnavailableError
from ccpipe.telemetry import Telemetry


@given(st.binary(), st.binary(), st.binary(), st.binary())
def test_ids_are_equal_only_for_equal_content(a: bytes, b: bytes, c: bytes, d: bytes) -> None:
    """An id stands for subject and payload together, without confusing where one ends."""
    if b"\0" not in a + c:
        assert (digest(a, b) == digest(c, d)) == ((a, b) == (c, d))


async def test_a_message_is_in_the_stream_when_store_returns(site: Site) -> None:
    """One that is stored again under the same id is kept once."""
    async with Connection(site.bus, name="t", telemetry=Telemetry()) as bus:
        await bus.jetstream().add_stream(name="s", subjects=["a.>"])
        for _ in range(2):
            await store(bus, "a.b", b"payload", {MESSAGE_ID: digest("a.b", b"payload")})
        assert (await bus.jetstream().stream_info("s")).state.messages == 1
        assert (await bus.jetstream().get_msg("s", 1)).data == b"payload"


async def test_a_subject_without_a_stream_is_named(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether nobody listens there, or only a subscriber that sends no acknowledgement."""
    monkeypatch.setattr(module, "STORE_SECONDS", 0.2)
    async with Connection(site.bus, name="t", telemetry=Telemetry()) as bus:
        with pytest.raises(NoStreamError, match="a: no stream stores it") as caught:
            await store(bus, "a", b"", {})
        assert caught.value.subject == "a"
        await bus.subscribe("a", lambda delivery: None)
        with pytest.raises(NoStreamError, match="did not answer in time"):
            await store(bus, "a", b"", {})


async def test_what_the_broker_can_never_store_is_not_unavailable(site: Site) -> None:
    """A payload beyond its limit is rejected; a subject with a space cannot be encoded."""
    async with Connection(site.bus, name="t", telemetry=Telemetry()) as bus:
        with pytest.raises(RejectedError):
            await store(bus, "a", bytes(bus.max_payload + 1), {})
        with pytest.raises(EncodeError, match="subject 'a b'"):
            await store(bus, "a b", b"", {})


async def test_a_closed_connection_is_unavailable(site: Site) -> None:
    """The message can be stored once the broker is back."""
    async with Connection(site.bus, name="t", telemetry=Telemetry()) as bus:
        pass
    with pytest.raises(UnavailableError):
        await store(bus, "a", b"", {})
