"""Publishing into a stream: one message, stored before the call returns."""

import hashlib

import nats.errors

from ccpipe.bus.nats.connection import Connection
from ccpipe.bus.nats.explain import CURE, explain
from ccpipe.errors import DeniedError, EncodeError, RejectedError, UnavailableError

HEADER_ROOM = 1024
"""Bytes of the server's ``max_payload`` that are left for headers."""
STORE_SECONDS = 5.0
"""How long the broker may take to store a message."""
PING_SECONDS = 1.0
"""How long it may take to say that it is there at all."""
MESSAGE_ID = "Nats-Msg-Id"
"""Header by which the broker recognises a message that is published again."""


class NoStreamError(UnavailableError):
    """No stream seems to store a subject; creating one may help."""

    def __init__(self, subject: str, reason: str) -> None:
        """Name the subject and what the broker said."""
        super().__init__(f"publishing on {subject}: {reason}")
        self.subject = subject
        self.reason = reason


async def store(bus: Connection, subject: str, payload: bytes, headers: dict[str, str]) -> None:
    """Publish a message and wait until a stream has it.

    Raises
    ------
    NoStreamError
        where nobody says that a stream has it.
    ForbiddenError
        where the server does not permit us to publish there.
    UnavailableError, RejectedError, EncodeError, DeniedError
        as ``Sink.write`` does.

    """
    from nats.js.errors import NoStreamResponseError  # 1 MB where there is no JetStream

    if bus.is_silent and not await bus.answers(PING_SECONDS):
        raise _no_answer(subject)
    try:
        async with bus.permissions.replying(subject):
            await bus.jetstream(STORE_SECONDS).publish(subject, payload, headers=headers)
    except NoStreamResponseError:
        raise NoStreamError(subject, "no stream stores it") from None
    except (nats.errors.TimeoutError, TimeoutError):
        # The same happens where a subject has subscribers but no stream: a server that answers a
        # ping is there. One that does not is asked nothing more, since the process may be ending.
        if not await bus.answers(PING_SECONDS):
            raise _no_answer(subject) from None
        bus.permissions.require_replies()
        if stuck := await _streams_of(bus, subject):
            # The server sends no answer at all where a write to its disk fails.
            raise UnavailableError(
                f"publishing on {subject}: the server answers, but its stream {stuck[0]} "
                f"acknowledges nothing: it is overloaded, or JetStream's disk is full or fails: "
                f"{CURE}"
            ) from None
        raise NoStreamError(subject, "the server did not answer in time") from None
    except nats.errors.MaxPayloadError as error:
        raise RejectedError(str(error)) from None
    except (nats.errors.BadSubjectError, ValueError) as error:
        raise EncodeError(f"subject {subject!r}: {error}") from None
    except (nats.errors.Error, OSError) as error:
        raise explain(error, f"publishing on {subject}") from None


async def _streams_of(bus: Connection, subject: str) -> list[str]:
    from ccpipe.bus.nats.streams.jetstream import names_of

    try:
        return await names_of(bus.jetstream(PING_SECONDS), subject)
    except (UnavailableError, DeniedError):
        return []  # not everybody may ask


def _no_answer(subject: str) -> UnavailableError:
    return UnavailableError(f"publishing on {subject}: the server does not answer")


def digest(*parts: str | bytes) -> str:
    """Return a message id that depends on the content alone."""
    state = hashlib.blake2b(digest_size=16)
    for part in parts:
        state.update(part.encode() if isinstance(part, str) else part)
        state.update(b"\0")
    return state.hexdigest()
