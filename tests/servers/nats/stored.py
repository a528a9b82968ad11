"""The content of a stream of a nats-server."""

import nats

from ccpipe.bus.nats.server import NatsServer
from ccpipe.formats.lineprotocol import decode
from ccpipe.message import Message


async def stored(server: NatsServer, stream: str = "ccpipe-fox%2Etest") -> list[tuple[str, bytes]]:
    """Return the messages of a stream in order: subjects and payloads."""
    client = await nats.connect(server.url)
    try:
        jetstream = client.jetstream()
        state = (await jetstream.stream_info(stream)).state
        found = []
        for sequence in range(state.first_seq, state.last_seq + 1):
            message = await jetstream.get_msg(stream, sequence)
            found.append((message.subject or "", message.data or b""))
    finally:
        await client.close()
    return found


async def stored_lines(server: NatsServer) -> list[Message]:
    return [line for _, payload in await stored(server) for line in decode(payload)]
