"""Several processes of one recipe share the partitions of a stream; one process reads each.

JetStream's priority groups with a pinned client do not replace this: the pin moves while its former
holder still has messages, which newer ones then overtake, and pins are not distributed equally. The
table of processes and the wait for redelivery would remain, and servers before 2.11 have no pins.
"""

import asyncio
import contextlib
import logging
import os
import secrets
import time
from collections.abc import AsyncIterator, Callable
from typing import NamedTuple, Self

from ccpipe.bus.nats.connection import Connection
from ccpipe.bus.nats.consumer import ConsumerReader
from ccpipe.bus.nats.streams.claims import Claims, ClaimTable, Observer
from ccpipe.bus.nats.streams.jetstream import Stream, consumer_of, consumers_of, stream_of
from ccpipe.bus.nats.streams.partitions import (
    StreamPartition,
    former_counts,
    partitions,
    partitions_of,
    undivided,
)
from ccpipe.bus.nats.streams.stream import ensure_consumer, ensure_stream
from ccpipe.bus.subjects import Subjects
from ccpipe.config import Site
from ccpipe.errors import ConfigError, UnavailableError
from ccpipe.pipeline import Batch, wait_for_event
from ccpipe.process.background import background, end_tasks
from ccpipe.records import Records

log = logging.getLogger(__name__)

BEATS = 4
"""Number of heartbeats within the lease."""
LEAVE_SECONDS = 2.0
"""Time limit for a terminating process to release its claims."""


class _Reading(NamedTuple):
    """A partition that this process reads."""

    released: asyncio.Event
    ended: asyncio.Event
    """All received messages were handed over, though perhaps not acknowledged yet."""
    task: asyncio.Task[None]


class Replicas:
    """This process's share of the work among the processes of a durable name.

    Each tick it reads the table of all processes, updates its heartbeat, claims free partitions up
    to an equal share, and releases partitions beyond its share once their messages are
    acknowledged. Partitions of a dead process are claimed after the lease, and read once the
    broker redelivers what the dead process did not acknowledge, so that each subject's order is
    preserved.
    """

    def __init__(
        self,
        bus: Connection,
        site: Site,
        durable: str,
        patterns: list[str],
        lease: float,
        read: Callable[[StreamPartition], ConsumerReader],
        *,
        exclusive: bool = False,
        sticky: bool = False,
    ) -> None:
        """Share the work over an open connection; `read` creates the reader of a partition.

        `lease` is the time in seconds without a heartbeat after which a process counts as dead. An
        `exclusive` process claims all partitions or none. A `sticky` one keeps its partitions
        until it ends, as a stateful translator requires; it claims its first share one lease after
        it started, so that processes that start together get equal shares.
        """
        self.bus = bus
        self.site = site
        self.durable = durable
        self.patterns = patterns
        self.lease = lease
        self.exclusive = exclusive
        self.sticky = sticky
        self.name = f"{site.hostname} pid {os.getpid()} {secrets.token_hex(3)}"
        self._read = read
        self._claims = Claims(site.bus, Subjects.of(site), durable)
        self._observer = Observer(max_gap=lease / 2)
        self._readings: dict[str, _Reading] = {}
        self._batches: asyncio.Queue[Batch[Records] | None] = asyncio.Queue(maxsize=1)
        self._stopped = asyncio.Event()
        self._failed: BaseException | None = None
        self._stream = ""
        self._came = time.monotonic()
        self._before: ClaimTable | None = None
        self._keeper: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._keeper = asyncio.create_task(self._keep(), name="ccpipe-replicas")
        return self

    async def __aexit__(self, *exit_: object) -> None:
        tasks = [reading.task for reading in self._readings.values()]
        tasks += [self._keeper] if self._keeper else []
        await end_tasks(tasks)
        with contextlib.suppress(UnavailableError, TimeoutError):
            async with asyncio.timeout(LEAVE_SECONDS):
                await self._leave()

    def stop(self) -> None:
        self._stopped.set()

    async def batches(self) -> AsyncIterator[Batch[Records]]:
        while (batch := await self._batches.get()) is not None:
            yield batch
        if self._failed is not None:
            raise self._failed

    async def _keep(self) -> None:
        try:
            while not self._stopped.is_set() and self._failed is None:
                try:
                    await self._tick()
                except UnavailableError as error:
                    log.warning("%s; retrying", error)
                await wait_for_event(self._stopped, self.lease / BEATS)
            for reading in self._readings.values():
                reading.released.set()
            if self._failed is None:
                await asyncio.gather(*(r.ended.wait() for r in self._readings.values()))
        except Exception as error:  # noqa: BLE001 - re-raised by the iteration
            self._failed = error
        await self._batches.put(None)

    async def _tick(self) -> None:
        if not self.bus.is_connected:
            return
        stream = await self._prepared()
        former = await self._unread_of_former_counts(stream)
        current = partitions(self.durable, partitions_of(stream.config))
        wanted = {each.consumer: each for each in [*former, *current]}
        delays = await self._exchange(list(wanted))
        if delays is None:
            return
        for name, delay in delays.items():
            # The new order of a subject starts when everything stored before has been processed.
            if name not in self._readings and (wanted[name] in former or not former):
                self._begin(wanted[name], delay)

    async def _prepared(self) -> Stream:
        """Return the stream; create it, and consumers for messages stored in former partitions."""
        jetstream = self.bus.jetstream()
        stream = await stream_of(jetstream, self._stream) if self._stream else None
        if stream is None:
            subjects = Subjects.of(self.site)
            name = await ensure_stream(jetstream, self.site.bus, subjects, self.patterns)
            stream = await stream_of(jetstream, name)
            if stream is None:
                raise UnavailableError(f"the stream {name} was deleted")
            for total in former_counts(stream.config):
                for former in partitions(self.durable, total):
                    stored = former.stored(self.patterns)
                    await ensure_consumer(jetstream, name, former.consumer, stored, self.lease)
            self._stream = name
            for key, template in undivided(subjects).items():
                if any(pattern in self.patterns for pattern in subjects.patterns([key])):
                    log.warning(
                        "all nodes publish on %s, which stays in one partition: only one bridge of "
                        "%s reads it; put {hostname} into bus.subjects.%s "
                        "(docs/operations/scale.md)",
                        template, self.durable, key,
                    )  # fmt: skip
        return stream

    async def _unread_of_former_counts(self, stream: Stream) -> list[StreamPartition]:
        """Return partitions of the oldest count that still stores unprocessed messages."""
        found = []
        order = former_counts(stream.config)
        async for consumer in consumers_of(self.bus.jetstream(), stream.name):
            partition = StreamPartition.of_consumer(consumer.name, self.durable)
            is_unread = consumer.num_pending or consumer.num_ack_pending
            now = partitions_of(stream.config)
            if partition and is_unread and partition.total != now and partition.total in order:
                found.append(partition)
        oldest = min((p.total for p in found), key=order.index, default=0)
        return [partition for partition in found if partition.total == oldest]

    async def _exchange(self, wanted: list[str]) -> dict[str, float] | None:
        """Update the table; return our partitions, with seconds to wait before reading each.

        None if an exclusive process must wait.
        """
        jetstream = self.bus.jetstream()
        while True:
            table, sequence = await self._claims.read(jetstream)
            silent = self._observer.silent(table)
            self._abandon_lost(table)
            dead = {name for name in silent if silent[name] > self.lease and name != self.name}
            silent_of = {p: silent[owner] for p, owner in table.owners.items() if owner in dead}
            if self.exclusive and not self._is_alone(table, dead):
                return None
            table.remove(dead)
            self._release_surplus(table, wanted)
            table.members[self.name] = table.members.get(self.name, 0) + 1
            may_claim = not self.sticky or time.monotonic() - self._came > self.lease
            new = table.claim(self.name, wanted, list(self._readings)) if may_claim else []
            if await self._claims.write(jetstream, table, sequence):
                break
        if new:
            log.info("%s reads %s", self.durable, ", ".join(table.of(self.name)))
        return {name: silent_of.get(name, 0.0) for name in table.of(self.name) if name in wanted}

    def _is_alone(self, table: ClaimTable, dead: set[str]) -> bool:
        """Return whether this is the only process; raises ConfigError if another one is alive."""
        others = set(table.members) - dead - {self.name}
        before, self._before = self._before, table
        if before and any(
            table.members[name] != before.members.get(name, table.members[name]) for name in others
        ):
            raise ConfigError(
                f"the durable name {self.durable!r} is in use by {min(others)}, and a translator "
                "of this recipe must see all messages: stop the other bridge, or choose another "
                "`durable`"
            )
        return not others

    def _abandon_lost(self, table: ClaimTable) -> None:
        """Stop reading partitions that another process claimed for want of our heartbeat."""
        for name in list(self._readings):
            owner = table.owners.get(name, self.name)
            if owner == self.name:
                continue
            if self.sticky or self.exclusive:
                raise UnavailableError(f"{owner} took {name} over: this process was stalled")
            log.warning("%s took %s over: this process was stalled", owner, name)
            self._readings.pop(name).task.cancel()

    def _release_surplus(self, table: ClaimTable, wanted: list[str]) -> None:
        """Remove ended partitions from the table; start releasing unwanted or surplus ones."""
        for name, reading in list(self._readings.items()):
            if reading.task.done():
                del self._readings[name]
                table.owners.pop(name, None)
        own = table.of(self.name)
        surplus = [name for name in own if name not in wanted]
        if self.name in table.members and not self.sticky:
            rest = [name for name in own if name in wanted]
            surplus += rest[table.share(self.name, len(wanted)) :]
        for name in surplus:
            if name in self._readings:
                self._readings[name].released.set()
            else:
                del table.owners[name]

    def _begin(self, partition: StreamPartition, silent: float) -> None:
        released, ended = asyncio.Event(), asyncio.Event()
        work = self._read_partition(partition, silent, released, ended)
        task = asyncio.create_task(work, name=f"ccpipe-{partition.consumer}")
        task.add_done_callback(self._note_failure)
        self._readings[partition.consumer] = _Reading(released, ended, task)

    async def _read_partition(
        self,
        partition: StreamPartition,
        silent: float,
        released: asyncio.Event,
        ended: asyncio.Event,
    ) -> None:
        try:
            await self._await_redelivery(partition, silent, released)
            if released.is_set():
                return
            async with self._read(partition) as reader:
                releasing = background(_release(reader, released), "ccpipe-release")
                try:
                    async for batch in reader.batches():
                        await self._batches.put(batch)
                finally:
                    releasing.cancel()
                ended.set()
                while not reader.is_acknowledged:  # noqa: ASYNC110 - it is a plain flag
                    await asyncio.sleep(0.05)
        finally:
            ended.set()

    async def _await_redelivery(
        self, partition: StreamPartition, silent: float, released: asyncio.Event
    ) -> None:
        """Wait until the broker redelivers what the former process did not acknowledge.

        It does so before delivering anything new, but only after ``ack_wait``.
        """
        consumer = await consumer_of(self.bus.jetstream(), self._stream, partition.consumer)
        if consumer is not None and consumer.num_ack_pending:
            # A message may have been extended one heartbeat after the last one in the table.
            await wait_for_event(released, max(0.0, self.lease * (1 + 1 / BEATS) + 1 - silent))

    def _note_failure(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            if isinstance(error, UnavailableError):
                log.warning("%s; retrying", error)  # still claimed: start it again
            elif self._failed is None:
                self._failed = error
                self._stopped.set()

    async def _leave(self) -> None:
        while self.bus.is_connected:
            table, sequence = await self._claims.read(self.bus.jetstream())
            table.remove({self.name})
            if await self._claims.write(self.bus.jetstream(), table, sequence):
                return


async def _release(reader: ConsumerReader, released: asyncio.Event) -> None:
    await released.wait()
    reader.release()
