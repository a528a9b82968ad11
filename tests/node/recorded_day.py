"""A day of slots on recorded trees, as fast as the machine can: the sampler's clock is simulated.

What the recording has no hardware for (see ``tests/data/recorded``) is read from the made trees of
``tests/data/sys``, whose two readings take turns.
"""

import asyncio
import contextlib
import gc
import lzma
import random
import re
import sys
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from unittest import mock

from ccpipe.message import Message
from ccpipe.node.sampling.collector import Collector
from ccpipe.node.sampling.sampler import Sampler, SamplerSettings
from ccpipe.registry import construct, find
from ccpipe.telemetry import Telemetry
from tests.node.conftest import Root
from tests.paths import TEST_DATA

RECORDED = TEST_DATA / "recorded"
READINGS = 12
SECOND = 10**9
INTERVAL = 10
INTERVALS = {"temperature": 60.0, "memory": 30.0}
"""Of collectors that have one of their own; a cycle of the recording holds both of them."""

FROM_RECORDING = (
    "cpu", "disk", "load", "memory", "network", "numa", "pressure", "processes",
)  # fmt: skip
MADE = {
    "amd_gpu": "amd",
    "clock": "clock",
    "infiniband": "infiniband",
    "lustre": "lustre",
    "nfs": "nfs",
    "rapl": "rapl",
    "slurm_cgroup": "cgroup-v2",
    "temperature": "hwmon",
}
_OPTIONS: dict[str, dict[str, object]] = {"cpu": {"hwthreads": ["*"]}, "memory": {"domains": True}}


def unpack(packed: Path, directory: Path) -> list[Path]:
    text = lzma.decompress(packed.read_bytes()).decode()
    files: dict[str, str] = {}
    directories = []
    for number, reading in enumerate(re.split(r"^@ \d+\n", text, flags=re.MULTILINE)[1:]):
        for block in re.split(r"^(?=## /|- /)", reading, flags=re.MULTILINE)[1:]:
            head, _, content = block.partition("\n")
            if head.startswith("- "):
                del files[head.removeprefix("- ")]
            else:
                files[head.removeprefix("## ")] = content
        directories.append(directory / str(number))
        for name, content in files.items():
            path = directories[-1] / name.lstrip("/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)
    return directories


class Trees:
    """The roots that collectors read: they show another reading in each slot."""

    def __init__(self, directory: Path) -> None:
        (packed,) = RECORDED.glob("*.txt.xz")
        self._readings = unpack(packed, directory)
        assert len(self._readings) == READINGS
        self._recorded = directory / "recorded"
        self._made = {}
        for name, tree in MADE.items():
            (directory / name).mkdir()
            self._made[tree] = Root(directory / name / "root")
        self.show(0)

    def show(self, slot: int) -> None:
        self._recorded.unlink(missing_ok=True)
        self._recorded.symlink_to(self._readings[slot % READINGS])
        for tree, root in self._made.items():
            root.show(f"{tree}/{('first', 'second')[slot % 2]}")

    def collectors(self) -> dict[str, Collector]:
        roots = dict.fromkeys(FROM_RECORDING, str(self._recorded))
        roots |= {name: str(self._made[tree]) for name, tree in MADE.items()}
        return {
            name: construct(
                find("collectors", name, "test"),
                {"root": root, **_OPTIONS.get(name, {})},
                where="test",
                path=name,
                context={},
            )
            for name, root in roots.items()
        }


class Clocks:
    """Replaces the module ``time``: time passes when the sampler sleeps.

    The wall clock runs `fast`, as one that is not yet corrected does; each sleep lasts up to
    `oversleep` seconds too long, as on a busy machine.
    """

    def __init__(self, *, fast: float = 0.0, oversleep: float = 0.0) -> None:
        self.passed = 0
        self._fast, self._oversleep = fast, oversleep
        self._random = random.Random(1)

    def time_ns(self) -> int:
        return 1_740_027_953 * SECOND + self.passed + round(self.passed * self._fast)

    def monotonic(self) -> float:
        return self.passed / SECOND

    def sleep(self, seconds: float) -> None:
        seconds += self._random.uniform(0, self._oversleep)
        self.passed += round(seconds * SECOND)


class Simulated(Sampler):
    """A sampler whose sleeps take no time, and whose nodes change from slot to slot."""

    def __init__(self, trees: Trees, clocks: Clocks, jitter: float) -> None:
        self.counted = Telemetry()
        self.clocks, self.trees = clocks, trees
        settings = SamplerSettings(
            trees.collectors(),
            interval=INTERVAL,
            intervals=INTERVALS,
            jitter=jitter,
            tags={"cluster": "c", "hostname": "n"},
            timeout=600,
        )
        super().__init__(settings, telemetry=self.counted)

    async def _pause(self, seconds: float) -> bool:
        self.clocks.sleep(seconds)
        self.trees.show(self.clocks.time_ns() // (INTERVAL * SECOND))
        return not self._stopped.is_set()


@dataclass
class Day:
    """The result."""

    slots: "array[int]" = field(default_factory=lambda: array("q"))
    """Numbers of the slots that were sampled, in this order; packed, so that they take no room."""
    lateness: "array[float]" = field(default_factory=lambda: array("d"))
    """Seconds from the begin of each slot to its sample, by the wall clock."""
    missed: int = 0
    """Slots that the sampler itself counted as missed."""
    sizes: list[int] = field(default_factory=list)
    """What `size` said after each `cycle` of slots."""

    @property
    def missing(self) -> int:
        return self.slots[-1] - self.slots[0] + 1 - len(set(self.slots))

    @property
    def double(self) -> int:
        return len(self.slots) - len(set(self.slots))


def live(
    directory: Path,
    slots: int,
    *,
    clocks: Clocks,
    jitter: float = 0.0,
    cycle: int = READINGS,
    size: Callable[[], int] = sys.getallocatedblocks,
    see: Callable[[list[Message]], object] = lambda _: None,
) -> Day:
    """Sample so many slots; `see` is shown each batch, and `size` asked how much memory is used.

    By default that is the number of blocks that Python's objects take.
    """
    day = Day()
    sampler = Simulated(Trees(directory), clocks, jitter)

    async def run() -> None:
        async for batch in sampler.batches():
            time = batch.records[0].time
            day.slots.append(time // (INTERVAL * SECOND))
            day.lateness.append((clocks.time_ns() - time) / SECOND)
            see(batch.records)
            if len(day.slots) % cycle == 0:
                gc.collect()
                day.sizes.append(size())
            if len(day.slots) == slots:
                sampler.stop()

    with _clocks(clocks):
        asyncio.run(run())
    day.missed = sampler.counted.total(sampler.counted.missed)
    return day


@contextlib.contextmanager
def _clocks(clocks: Clocks) -> Iterator[None]:
    with (
        mock.patch("ccpipe.node.sampling.sampler.time", clocks),
        mock.patch("ccpipe.node.sampling.collector.monotonic", clocks.monotonic),
    ):
        yield
