"""Hours of slots on recorded trees: none missing, none double, and nothing that grows."""

from pathlib import Path

import pytest

from ccpipe.message import Message, Value
from tests.node.recorded_day import (
    FROM_RECORDING,
    INTERVALS,
    MADE,
    READINGS,
    RECORDED,
    Clocks,
    live,
    unpack,
)

CYCLES = 16
Series = tuple[str, tuple[tuple[str, str], ...]]


@pytest.mark.long
def test_sampler_keeps_slots_and_memory_on_fast_clock(tmp_path: Path) -> None:
    """With sleeps that last too long, each slot is sampled once, and none is late.

    After the first half, Python's objects take no more memory: 80 blocks are allowed for other
    work of the process, where a single object kept in each slot would be 96.
    """
    clocks = Clocks(fast=1e-4, oversleep=0.02)
    day = live(tmp_path, CYCLES * READINGS, clocks=clocks, jitter=0.2)
    assert (day.missing, day.double, day.missed) == (0, 0, 0)
    assert list(day.slots) == list(range(day.slots[0], day.slots[0] + CYCLES * READINGS))
    assert all(0 <= late <= 0.2 + 2 * 0.02 + 0.002 for late in day.lateness)
    assert day.sizes[-1] - day.sizes[CYCLES // 2 - 1] <= 80


def test_cycles_give_same_values(tmp_path: Path) -> None:
    """Every series, in the same slots with the same value: nothing is lost, late or added up."""
    cycles: list[dict[tuple[int, Series], Value]] = [{} for _ in range(3)]
    seen = 0

    def see(messages: list[Message]) -> None:
        nonlocal seen
        cycle, slot = divmod(seen, READINGS)
        seen += 1
        for message in messages:
            key = slot, (message.name, tuple(sorted(message.tags.items())))
            assert key not in cycles[cycle]
            cycles[cycle][key] = message.value

    live(tmp_path, 3 * READINGS, clocks=Clocks(), see=see)
    _, second, third = (
        {key: value for key, value in cycle.items() if not _of_this_machine(key[1][0])}
        for cycle in cycles
    )
    assert second.keys() == third.keys()
    assert second == {key: pytest.approx(value) for key, value in third.items()}
    names = {name for _, (name, _) in second}
    assert {"cpu_user", "net_bytes_in_bw", "cpu_power", "job_user_cpu", "temperature"} <= names
    reported = [slot for slot, (name, _) in second if name == "mem_used"]
    assert len(set(reported)) == READINGS * 10 / INTERVALS["memory"]


def _of_this_machine(name: str) -> bool:
    return name in ("disk_total", "disk_free", "part_max_used")


@pytest.mark.long
def test_recording_is_small_and_covers_many_times(tmp_path: Path) -> None:
    """Below 300 KB; time advances between readings, and processes start and end."""
    (packed,) = RECORDED.glob("*.txt.xz")
    assert packed.stat().st_size < 300_000
    readings = unpack(packed, tmp_path)
    busy = [
        sum(map(int, (directory / "proc/stat").read_text().splitlines()[0].split()[1:9]))
        for directory in readings
    ]
    assert busy == sorted(set(busy))
    assert len({frozenset(path.name for path in (f / "proc").iterdir()) for f in readings}) > 1
    assert not set(FROM_RECORDING) & set(MADE)
