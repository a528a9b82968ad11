"""What JetStream refuses, in words that name the resource and the cure."""

import nats.js.errors
import pytest

from ccpipe.bus.nats.explain import explain, storage_problem
from ccpipe.bus.nats.publisher import Outgoing, store
from ccpipe.bus.nats.server import NatsServer
from ccpipe.config import Bus
from ccpipe.errors import DeniedError, UnavailableError
from tests.bus.nats.conftest import connected


@pytest.mark.parametrize(
    ("code", "description", "words"),
    [
        (10047, "insufficient storage resources available", "no more storage"),
        (10023, "insufficient resources", "no more storage"),
        (10077, "error storing message: write x.blk: no space left on device", "restart"),
        (10077, "maximum bytes exceeded", "stream_size"),
        (10077, "something new", "server's log"),
        (10002, "resource limits exceeded for account", "account"),
    ],
)
def test_a_missing_resource_is_named_with_its_cure(code: int, description: str, words: str) -> None:
    """The broker's own words stay, so that its documentation can be searched for them."""
    said = storage_problem(code, description)
    assert words in said
    assert description in said


def test_other_errors_are_no_storage_problem() -> None:
    """A code that has nothing to do with storage stays what the broker calls it."""
    assert storage_problem(10058, "stream name already in use") == ""
    denied = nats.js.errors.APIError(code=403, description="no")
    assert isinstance(explain(denied, "x"), DeniedError)
    off = explain(nats.js.errors.ServiceUnavailableError(), "x")
    assert isinstance(off, UnavailableError)
    assert "jetstream = false" in str(off)


async def test_a_full_stream_that_refuses_is_named(nats_server: NatsServer) -> None:
    """With ``stream_discard = "new"`` the publisher learns what is full and what to raise."""
    async with connected(Bus(servers=[nats_server.url])) as bus:
        await bus.jetstream().add_stream(
            name="small", subjects=["a"], max_bytes=4096, discard="new"
        )
        for number in range(3):
            await store(bus, [Outgoing("a", b"x" * 1000, f"{number}")], set())
        with pytest.raises(UnavailableError, match="stream_size"):
            await store(bus, [Outgoing("a", b"x" * 1000, "one too many")], set())
