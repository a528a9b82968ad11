"""Sums over a job's processes, and by how much their counters grew."""

from array import array
from collections.abc import Iterable, Mapping, Sequence
from itertools import repeat, zip_longest

from ccpipe.formats.sonar.types.sample import SampleProcess

ProcessKey = int | tuple[int, str]
"""A process ID; where it is zero, as old Sonar wrote it for rolled-up processes, parent and
command."""
Seen = tuple[tuple[ProcessKey, ...], Sequence[int]]
"""Processes and their counters, three for each: ``cpu_time``, ``data_read``, ``data_written``."""

Levels = tuple[int, int, int, int]
"""Resident and virtual memory in bytes, processes, and threads including the main ones."""
Gains = tuple[float, int, int, int]
"""``cpu_avg`` of new and restarted processes; of the others seconds used, kilobytes read and
written."""
CardSums = Mapping[str, Sequence[float]]
"""By UUID: ``gpu_util``, ``gpu_memory`` and ``gpu_memory_util``."""


def add_up(
    processes: Sequence[SampleProcess], before: Seen | None
) -> tuple[Levels, Gains, CardSums, Seen]:
    """Add up a job's processes.

    Parameters
    ----------
    processes
        Those of one job.
    before
        The last part of the result for the job's previous sample; None if there is none.

    """
    keys = tuple([p.pid or (p.ppid, p.cmd) for p in processes])
    counters: list[int] = []
    cards: dict[str, list[float]] = {}
    resident = virtual = threads = used = read = written = 0
    count = len(processes)
    average = 0.0
    for p, old in zip(processes, _last(keys, before), strict=True):
        resident += p.resident_memory
        virtual += p.virtual_memory
        threads += p.num_threads
        count += p.rolledup
        time, reads, writes = now = p.cpu_time, p.data_read, p.data_written
        counters += now
        if old is None or time < old[0]:
            average += p.cpu_avg
        else:
            used += time - old[0]
            read += reads - old[1] if reads > old[1] else 0
            written += writes - old[2] if writes > old[2] else 0
        for card in p.gpus:
            whole = cards.setdefault(card.uuid, [0.0, 0.0, 0.0])
            whole[0] += card.gpu_util
            whole[1] += card.gpu_memory
            whole[2] += card.gpu_memory_util
    seen = keys, _compact(counters)
    return (
        (resident * 1024, virtual * 1024, count, threads + count),
        (average, used, read, written),
        cards,
        seen,
    )


def shares(
    now: Sequence[int], before: Sequence[int], scale: float
) -> tuple[list[float], float] | None:
    """Return the growth of each counter and of all together, times `scale`.

    None if one went down, or where their number changed.
    """
    if len(now) != len(before):
        return None
    gains = [new - old for new, old in zip(now, before, strict=True)]
    if gains and min(gains) < 0:
        return None
    return [scale * gain for gain in gains], scale * sum(gains)


def _last(
    keys: tuple[ProcessKey, ...], before: Seen | None
) -> Iterable[tuple[int, int, int] | None]:
    """Return each process's last counters; None for one that is new."""
    if before is None:
        return repeat(None, len(keys))
    known, counters = before
    rows = list(zip(counters[::3], counters[1::3], counters[2::3], strict=True))
    if keys == known:
        return rows
    by_key = dict(zip(known, rows, strict=True))
    places = zip_longest(keys, known[: len(keys)])
    return [rows[row] if key == old else by_key.get(key) for row, (key, old) in enumerate(places)]


def _compact(counters: list[int]) -> Sequence[int]:
    try:
        return array("Q", counters)
    except OverflowError:  # beyond 64 bits: made by hand, not decoded
        return counters
