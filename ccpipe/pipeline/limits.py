"""Bounds on the memory of a pipe and on its writes."""

import msgspec


class Limits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Bounds on batches, on memory and on retries."""

    max_records: int = 50_000
    """Maximum number of records per write."""
    max_bytes: int = 4 * 2**20
    """Maximum size of the records of a write, in memory, approximately."""
    max_wait: float = 1.0
    """Maximum time that a record waits, in seconds."""
    max_memory: int = 64 * 2**20
    """Maximum bytes in memory, including a running write; beyond it, the source is not read."""
    stop_timeout: float = 3.0
    """Time in seconds for which writes are retried after a stop was requested."""
    write_timeout: float = 30.0
    """Timeout of a write in seconds, after which it is retried with half of the records.

    It grows while even small writes take longer. 0 if a write cannot be abandoned, such as a disk
    write in a thread. The default of a sink that limits its own steps, and goes on where it was if
    it is repeated, is infinity: whatever is configured, it is repeated with the same records.
    """
    max_backoff: float = 30.0
    """Maximum pause between attempts, in seconds; pauses grow from 0.1 s, with jitter."""
