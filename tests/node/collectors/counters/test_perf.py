"""Hardware counters. Virtual machines have none: the calculation is tested on made readings."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from ccpipe.errors import DataError
from ccpipe.node.collectors.counters import perf
from ccpipe.node.collectors.counters.perf import METRICS, Perf
from ccpipe.node.linux.perf_event import (
    HARDWARE,
    RAW,
    SOFTWARE,
    EventGroup,
    GroupReading,
    PerfEvent,
)
from tests.node.conftest import Reported, Root, checked, reported

CYCLES, INSTRUCTIONS = PerfEvent(HARDWARE, 0), PerfEvent(HARDWARE, 1)
SECOND = 10**9
INTEL_DP = [PerfEvent(RAW, config) for config in (0x01C7, 0x04C7, 0x10C7, 0x40C7)]
INTEL_SP = [PerfEvent(RAW, config) for config in (0x02C7, 0x08C7, 0x20C7, 0x80C7)]


class Made:
    """Replaces the kernel: groups whose events gain a fixed amount each second."""

    def __init__(self, gains: Callable[[PerfEvent, int], int]) -> None:
        self.gains = gains
        self.seconds = 1
        self.opened: list[tuple[list[PerfEvent], int]] = []
        self.refused: dict[PerfEvent, int] = {}

    def group(self, events: Sequence[PerfEvent], cpu: int) -> "Made.Group":
        for event in events:
            if event in self.refused:
                raise OSError(self.refused[event], "refused")
        self.opened.append((list(events), cpu))
        return Made.Group(self, list(events), cpu)

    class Group:
        """One group; it takes turns, so that it counts half of the time."""

        def __init__(self, made: "Made", events: list[PerfEvent], cpu: int) -> None:
            self.made, self.events, self.cpu = made, events, cpu

        def read(self) -> GroupReading:
            half = self.made.seconds * SECOND // 2
            gains = (self.made.gains(event, self.cpu) for event in self.events)
            return GroupReading(2 * half, half, tuple(gain * half // SECOND for gain in gains))


@pytest.fixture
def root(root: Root) -> Root:
    root.show("perf/first")
    return root


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Made:
    """Replace the kernel: hardware thread n does n + 1 instructions in 2 cycles."""

    def gains(event: PerfEvent, cpu: int) -> int:
        return {CYCLES: 2_000_000, INSTRUCTIONS: 1_000_000 * (cpu + 1)}.get(event, 1000)

    kernel = Made(gains)
    monkeypatch.setattr(perf, "EventGroup", kernel.group)
    return kernel


def second(made: Made, root: object, **options: Any) -> Reported:
    """Return the second sample, ten seconds after the first, which is empty."""
    collector = Perf(root=str(root), **options)
    assert list(collector.collect(1)) == []
    made.seconds += 10
    return reported(collector.collect(2))


def test_perf_reports_rates_of_hwthreads_and_node(root: Root, made: Made) -> None:
    """From two readings; 1000 of each kind of instruction a second, of 1 to 8 operations."""
    values = second(made, root, hwthreads=["*"])
    assert values["ipc", "0"] == 0.5
    assert values["ipc", "3"] == 2
    assert values["ipc", ""] == (1 + 2 + 3 + 4) / 8
    assert values["flops_dp", "0"] == 1000 * (1 + 2 + 4 + 8)
    assert values["flops_sp", "0"] == 1000 * (1 + 4 + 8 + 16)
    assert values["flops_any", "0"] == 2 * 15_000 + 29_000
    assert values["flops_any", ""] == 4 * 59_000


def test_perf_reports_traffic_of_sockets_and_node(root: Root, made: Made) -> None:
    """A socket's read and write, 64 bytes each."""
    values = second(made, root)
    traffic = {of: value for (name, of), value in values.items() if name == "mem_bw"}
    assert traffic == {"0": 0.128, "1": 0.128, "": 0.256}


def test_perf_sends_exactly_declared_metrics(root: Root, made: Made) -> None:
    """Names, types of values and node types; of hardware threads only the configured metrics."""
    declared = {(row.name, row.kind, of) for row in METRICS for of in row.types}
    for hwthreads in (["*"], ["ipc", "flops_any"], []):
        collector = Perf(hwthreads=hwthreads, root=str(root))
        list(collector.collect(1))
        made.seconds += 10
        sent = {(m.name, type(m.value), m.tags["type"]) for m in map(checked, collector.collect(2))}
        assert sent == {
            row for row in declared
            if row[2] != "hwthread" or hwthreads == ["*"] or row[0] in hwthreads
        }  # fmt: skip


@pytest.mark.parametrize(
    ("cpuinfo", "groups"),
    [
        ("GenuineIntel 6 143 avx512f", [INTEL_DP, INTEL_SP]),
        ("GenuineIntel 6 79 avx2", [INTEL_DP[:-1], INTEL_SP[:-1]]),
        ("GenuineIntel 6 45 avx", []),
        ("GenuineIntel 15 79 avx", []),
        ("AuthenticAMD 23 1 avx2", [[PerfEvent(RAW, 0xF003)], [PerfEvent(RAW, 0x0F03)]]),
        ("AuthenticAMD 23 49 avx2", [[PerfEvent(RAW, 0x0F03)]]),
        ("AuthenticAMD 26 2 avx512f", [[PerfEvent(RAW, 0x0F03)]]),
        ("AuthenticAMD 21 2 avx", []),
        ("CentaurHauls 7 59 avx", []),
    ],
)
def test_perf_counts_operations_of_known_processors(
    tmp_path: Path, made: Made, cpuinfo: str, groups: list[list[PerfEvent]]
) -> None:
    """By vendor, family and model; a processor without 512 bits has one event less of each."""
    vendor, family, model, flags = cpuinfo.split()
    _machine(
        tmp_path,
        f"processor\t: 0\nvendor_id\t: {vendor}\ncpu family\t: {family}\nmodel\t\t: {model}\n"
        f"model name\t: x\nflags\t\t: fpu {flags}\n",
    )
    list(Perf(root=str(tmp_path)).collect(1))
    assert made.opened == [([CYCLES, INSTRUCTIONS], 0), *((events, 0) for events in groups)]


def test_perf_reports_no_precision_on_later_amd_processors(tmp_path: Path, made: Made) -> None:
    _machine(tmp_path, "vendor_id\t: AuthenticAMD\ncpu family\t: 25\nmodel\t\t: 17\n")
    values = second(made, tmp_path)
    assert values == {
        ("ipc", ""): 0.5, ("ipc", "0"): 0.5, ("flops_any", ""): 1000, ("flops_any", "0"): 1000,
    }  # fmt: skip


def test_perf_omits_unsupported_events(root: Root, made: Made) -> None:
    """Without the events of double precision there is no partial flops_any either."""
    made.refused = {INTEL_DP[0]: 2}
    names = {name for name, _ in second(made, root)}
    assert names == {"ipc", "flops_sp", "mem_bw"}


def test_perf_omits_sum_if_controller_is_refused(root: Root, made: Made) -> None:
    made.refused = {PerfEvent(24, 0x0C04): 22}
    assert ("mem_bw", "") not in second(made, root)


def test_perf_raises_kernel_error_if_nothing_counts(root: Root, made: Made) -> None:
    """ENOENT, as on a virtual machine: the sampler disables the collector, with one log line."""
    events = [CYCLES, *INTEL_DP, *INTEL_SP, PerfEvent(24, 0x0304)]
    made.refused = dict.fromkeys(events, 2)
    with pytest.raises(FileNotFoundError):
        list(Perf(root=str(root)).collect(1))


def test_perf_raises_permission_error_without_capability(root: Root, made: Made) -> None:
    """It is not reported as missing hardware."""
    made.refused = {INTEL_DP[0]: 13}
    with pytest.raises(PermissionError):
        list(Perf(root=str(root)).collect(1))


def test_perf_reopens_counters_when_hwthreads_change(root: Root, made: Made) -> None:
    """The next sample has rates again, of the hardware threads that are online."""
    collector = Perf(hwthreads=["*"], root=str(root))
    list(collector.collect(1))
    root.show("perf/second")
    assert list(collector.collect(2)) == []
    made.seconds = 5
    assert {n for name, n in reported(collector.collect(3)) if name == "ipc"} == {"0", "1", "2", ""}


def test_perf_omits_metrics_of_group_never_counted(
    root: Root, made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On one hardware thread: its own and the node's sum, as a smaller one would be wrong."""
    idle = Made.Group.read

    def read(group: Made.Group) -> GroupReading:
        if group.cpu == 2 and group.events == INTEL_SP:
            return GroupReading(made.seconds * SECOND, 0, (0,) * 4)
        return idle(group)

    monkeypatch.setattr(Made.Group, "read", read)
    values = second(made, root, hwthreads=["*"])
    assert {n for name, n in values if name == "flops_sp"} == {"0", "1", "3"}
    assert {n for name, n in values if name == "flops_dp"} == {"0", "1", "2", "3", ""}


def test_perf_counts_with_real_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two software clocks in place of cycles and instructions: as many of one as of the other."""
    cycles, instructions = perf._INSTRUCTIONS
    clock, task_clock = PerfEvent(SOFTWARE, 0), PerfEvent(SOFTWARE, 1)
    # Each in a group of its own: the kernel keeps only the clock that leads a group up to date.
    monkeypatch.setattr(perf, "_INSTRUCTIONS", (cycles._replace(event=clock),))
    monkeypatch.setattr(perf, "_flops", lambda _: [(instructions._replace(event=task_clock),)])
    try:
        EventGroup([clock], 0).close()
    except PermissionError as error:
        pytest.skip(f"counting for all processes is not for us: {error}")
    collector = Perf(hwthreads=["*"])
    list(collector.collect(1))
    sum(range(200_000))  # some time must pass
    values = reported(collector.collect(2))
    ratios = [value for (name, _), value in values.items() if name == "ipc"]
    assert len(ratios) >= 2
    assert ratios == pytest.approx([1.0] * len(ratios), rel=0.2)


def test_perf_rejects_invalid_list(tmp_path: Path) -> None:
    _machine(tmp_path, "")
    (tmp_path / "sys/devices/system/cpu/online").write_text("none\n")
    with pytest.raises(DataError, match="'none' is not a list"):
        list(Perf(root=str(tmp_path)).collect(1))


def _machine(root: Path, cpuinfo: str) -> None:
    for path, content in (("proc/cpuinfo", cpuinfo), ("sys/devices/system/cpu/online", "0\n")):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(content)
