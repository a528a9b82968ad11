"""Messages as a bridge delivers them, and which of them are stored."""

from array import array
from collections import Counter

from ccpipe.message import Message
from ccpipe.records import Provenance
from tests.deliveries import provenance_of
from tests.servers.postgres import Server
from tests.sinks.conftest import metric

LINES = 3
"""Of each message."""


def delivery(*numbers: int, consumer: str = "c") -> tuple[list[Message], Provenance]:
    records = [metric(float(n), row=str(row)) for n in numbers for row in range(LINES)]
    ends = array("q", range(LINES, LINES * len(numbers) + 1, LINES))
    times = array("q", [1000 + n for n in numbers])
    return records, provenance_of([consumer] * len(numbers), array("q", numbers), times, ends)


async def stored(server: Server, database: str) -> Counter[int]:
    rows = await server.ask(database, "SELECT value FROM messages")
    return Counter(int(value) for (value,) in rows)
