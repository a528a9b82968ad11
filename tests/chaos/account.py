"""The account of a fault: the fate of each published line."""

import re
from collections import Counter
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import nats.js.errors
from nats.aio.client import Client as NatsClient

from ccpipe.formats.lineprotocol import decode

if TYPE_CHECKING:
    from ccpipe.formats.delta import DeltaAddress

_NUMBER = re.compile(rb"value=([0-9]+)i")


@dataclass(frozen=True)
class Account:
    """Lines by their fate."""

    published: int
    stored: int
    """Different lines in the store."""
    duplicated: int
    """Copies in the store beyond the first."""
    dead: int
    """Lines among the dead letters."""
    dropped: int = 0
    """Lines dropped by a limit, according to the counters."""

    @property
    def lost(self) -> int:
        """Lines that are missing everywhere."""
        return self.published - self.stored - self.dead - self.dropped

    @classmethod
    def of(
        cls,
        published: Iterable[Hashable],
        stored: Iterable[Hashable],
        dead: Iterable[Hashable] = (),
    ) -> "Account":
        """Compare the ids; a line that is both stored and dead counts as stored."""
        wanted, copies = set(published), Counter(stored)
        kept = wanted & copies.keys()
        return cls(
            published=len(wanted),
            stored=len(kept),
            duplicated=sum(copies.values()) - len(copies),
            dead=len((wanted & set(dead)) - kept),
        )


def is_in_order(stored: Iterable[int]) -> bool:
    """Return whether lines are in order; later copies do not count."""
    first = list(dict.fromkeys(stored))
    return first == sorted(first)


def in_lines(payload: bytes) -> list[int]:
    """Return the ids in line protocol, without a torn line at the end."""
    return [int(str(line.value)) for line in decode(payload) if line.name == "m"]


def in_file(path: Path) -> list[int]:
    return in_lines(path.read_bytes()) if path.exists() else []


def in_parquet(directory: Path) -> list[int]:
    import pyarrow.dataset as ds

    table = ds.dataset(directory, partitioning="hive").to_table(columns=["value"])
    return [int(value) for value in table["value"].to_pylist()]


def in_delta(address: "DeltaAddress") -> list[int]:
    return [int(value) for value in address.open().to_pyarrow_table()["value"].to_pylist()]


async def in_stream(client: NatsClient, subject: str = "c.dead") -> list[int]:
    jetstream = client.jetstream(timeout=20)
    try:
        stream = await jetstream.find_stream_name_by_subject(subject)
    except nats.js.errors.NotFoundError:
        return []
    found: list[int] = []
    state = (await jetstream.stream_info(stream)).state
    for sequence in range(state.first_seq, state.last_seq + 1):
        message = await jetstream.get_msg(stream, sequence)
        if message.subject == subject:
            found += map(int, _NUMBER.findall(message.data or b""))
    return found


def as_row(fault: str, account: Account) -> str:
    numbers = (
        account.published, account.stored, account.duplicated, account.dead, account.dropped,
        account.lost,
    )  # fmt: skip
    return (
        f"| {fault} | " + " | ".join(f"{number:,}".replace(",", " ") for number in numbers) + " |"
    )
