"""Sums over a job's processes."""

from msgspec.structs import replace

from ccpipe.formats.sonar import SampleProcess, SampleProcessGpu, sums
from ccpipe.formats.sonar.sums import add_up, shares


def process(pid: int, time: int, read: int = 0, written: int = 0) -> SampleProcess:
    """Make a process that used ten percent of a core on average."""
    return SampleProcess(
        cmd="x", pid=pid, cpu_time=time, cpu_avg=10.0, data_read=read, data_written=written
    )


def gains(before: tuple[SampleProcess, ...], now: tuple[SampleProcess, ...]) -> sums.Gains:
    """Return what processes did from one sample to the next."""
    _, _, _, seen = add_up(before, None)
    return add_up(now, seen)[1]


def test_levels_are_sums_with_rolled_up_processes_as_many_as_they_are() -> None:
    """Memory is in bytes; each process has a main thread that ``num_threads`` does not count."""
    one = SampleProcess(resident_memory=3, virtual_memory=5, num_threads=2, pid=1)
    levels, _, cards, _ = add_up((one, replace(one, pid=2, rolledup=4)), None)
    assert levels == (6 * 1024, 10 * 1024, 6, 10)
    assert not cards


def test_a_process_is_found_wherever_it_stands() -> None:
    """Order does not matter; one that is new counts by its average, one that is gone not at all."""
    before = process(1, 10, 5, 7), process(2, 100), process(3, 1000)
    now = process(3, 1002), process(4, 9), process(1, 11, 6, 9)
    assert gains(before, now) == (10.0, 3, 1, 2)


def test_a_process_whose_time_went_down_is_another() -> None:
    """Its number was used again: nothing that it read or wrote is a gain."""
    assert gains((process(1, 10),), (process(1, 9, 100, 100),)) == (10.0, 0, 0, 0)


def test_bytes_that_went_down_are_no_gain() -> None:
    """The kernel takes back what was written and cancelled; time still counts."""
    assert gains((process(1, 10, 5, 5),), (process(1, 12, 4, 6),)) == (0.0, 2, 0, 1)


def test_rolled_up_processes_are_told_apart_by_parent_and_command() -> None:
    """They all have the number 0; of two that agree in both each goes with the one in its place."""
    a, b = (SampleProcess(ppid=1, cmd=cmd, cpu_time=5) for cmd in "ab")
    assert gains((a, b), (replace(b, cpu_time=7), replace(a, cpu_time=6)))[1] == 3
    assert gains((a, replace(a, cpu_time=50)), (a, replace(a, cpu_time=51)))[1] == 1


def test_a_card_is_summed_over_processes() -> None:
    """By its UUID, whatever its index is."""
    on = SampleProcessGpu(uuid="GPU-1", gpu_util=30.0, gpu_memory=512, gpu_memory_util=5.0)
    other = replace(on, uuid="GPU-2", gpu_util=1.0)
    _, _, cards, _ = add_up(
        (SampleProcess(pid=1, gpus=(on, other)), SampleProcess(gpus=(on,))), None
    )
    assert {uuid: list(card) for uuid, card in cards.items()} == {
        "GPU-1": [60.0, 1024.0, 10.0],
        "GPU-2": [1.0, 512.0, 5.0],
    }


def test_shares_are_gains_times_the_scale() -> None:
    """There are none where one went down, or where there are more or fewer."""
    assert shares((10, 25), (0, 5), 2.0) == ([20.0, 40.0], 60.0)
    assert shares((2**64 - 1,), (2**64 - 3,), 0.5) == ([1.0], 1.0)
    assert shares((1, 1), (1, 2), 2.0) is None
    assert shares((1, 1), (1,), 2.0) is None
    assert shares((), (), 2.0) == ([], 0.0)
