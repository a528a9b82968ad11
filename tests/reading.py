"""Sources that tests read: in the background, or to their end."""

import asyncio
from typing import Any, Self

from ccpipe.pipeline import Batch, Scope
from tests.conftest import eventually


class Reader:
    """Reads a source in the background and keeps its records."""

    def __init__(
        self, source: Any, *, acknowledge: bool = True, scope: Scope | None = None
    ) -> None:
        self.source, self.acknowledge = source, acknowledge
        self.scope = () if scope is None else (scope,)
        self.batches: list[Batch[Any]] = []
        self.records: list[Any] = []
        self.is_open = False

    @property
    def values(self) -> list[Any]:
        return [record.value for record in self.records]

    @property
    def origins(self) -> set[str]:
        return {origin for batch in self.batches for origin in batch.records.provenance.origins}

    async def __aenter__(self) -> Self:
        self.task = asyncio.create_task(self.read())
        await eventually(lambda: self.is_open or self.task.done())
        return self

    async def __aexit__(self, *_: object) -> None:
        self.source.stop()
        await asyncio.wait_for(self.task, 60)

    async def read(self) -> None:
        async with self.source:
            self.is_open = True
            async for batch in self.source.batches(*self.scope):
                self.batches.append(batch)
                self.records += batch.records
                if self.acknowledge and batch.ack:
                    await batch.ack()


async def read_all(source: Any, *, acknowledge: bool = True) -> list[Any]:
    """Return the records of a source that ends by itself."""
    reader = Reader(source, acknowledge=acknowledge)
    await reader.read()
    return reader.records
