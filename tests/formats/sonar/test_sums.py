"""Sums over a sample's numbers: the rules, and that the compiled kernel and its twin agree."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace

from ccpipe.formats.sonar import SampleProcess, SampleProcessGpu, decoder, sums
from ccpipe.formats.sonar.kernel import KERNEL
from ccpipe.formats.sonar.sums import add_up, shares

needs_kernel = pytest.mark.skipif(
    KERNEL is None and "CCPIPE_TESTS_STRICT" not in os.environ,
    reason="the compiled kernel was not built (a C++17 compiler and Cython are needed)",
)


@pytest.fixture(params=["compiled", "python"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hold the rules for both ways; without a kernel both are Python's."""
    if request.param == "python":
        monkeypatch.setattr(sums, "KERNEL", None)


both_ways = pytest.mark.usefixtures("way")


def in_python(work: Callable[..., Any], *args: Any) -> Any:
    """Do what the twin does."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sums, "KERNEL", None)
        patch.setattr(decoder, "KERNEL", None)
        return work(*args)


def process(pid: int, time: int, read: int = 0, written: int = 0) -> SampleProcess:
    """Make a process that used ten percent of a core on average."""
    return SampleProcess(
        cmd="x", pid=pid, cpu_time=time, cpu_avg=10.0, data_read=read, data_written=written
    )


def gains(before: tuple[SampleProcess, ...], now: tuple[SampleProcess, ...]) -> sums.Gains:
    """Return what processes did from one sample to the next."""
    _, _, _, seen = add_up(before, None)
    return add_up(now, seen)[1]


@both_ways
def test_levels_are_sums_with_rolled_up_processes_as_many_as_they_are() -> None:
    """Memory is in bytes; each process has a main thread that ``num_threads`` does not count."""
    one = SampleProcess(resident_memory=3, virtual_memory=5, num_threads=2, pid=1)
    levels, _, cards, _ = add_up((one, replace(one, pid=2, rolledup=4)), None)
    assert levels == (6 * 1024, 10 * 1024, 6, 10)
    assert not cards


@both_ways
def test_a_process_is_found_wherever_it_stands() -> None:
    """Order does not matter; one that is new counts by its average, one that is gone not at all."""
    before = process(1, 10, 5, 7), process(2, 100), process(3, 1000)
    now = process(3, 1002), process(4, 9), process(1, 11, 6, 9)
    assert gains(before, now) == (10.0, 3, 1, 2)


@both_ways
def test_a_process_whose_time_went_down_is_another() -> None:
    """Its number was used again: nothing that it read or wrote is a gain."""
    assert gains((process(1, 10),), (process(1, 9, 100, 100),)) == (10.0, 0, 0, 0)


@both_ways
def test_bytes_that_went_down_are_no_gain() -> None:
    """The kernel takes back what was written and cancelled; time still counts."""
    assert gains((process(1, 10, 5, 5),), (process(1, 12, 4, 6),)) == (0.0, 2, 0, 1)


@both_ways
def test_rolled_up_processes_are_told_apart_by_parent_and_command() -> None:
    """They all have the number 0; of two that agree in both each goes with the one in its place."""
    a, b = (SampleProcess(ppid=1, cmd=cmd, cpu_time=5) for cmd in "ab")
    assert gains((a, b), (replace(b, cpu_time=7), replace(a, cpu_time=6)))[1] == 3
    assert gains((a, replace(a, cpu_time=50)), (a, replace(a, cpu_time=51)))[1] == 1


@both_ways
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


@both_ways
def test_shares_are_gains_times_the_scale() -> None:
    """There are none where one went down, or where there are more or fewer."""
    assert shares((10, 25), (0, 5), 2.0) == ([20.0, 40.0], 60.0)
    assert shares((2**64 - 1,), (2**64 - 3,), 0.5) == ([1.0], 1.0)
    assert shares((1, 1), (1, 2), 2.0) is None
    assert shares((1, 1), (1,), 2.0) is None
    assert shares((), (), 2.0) == ([], 0.0)


numbers = st.integers(0, 40) | st.integers(2**47, 2**49) | st.integers(0, 2**64 - 1)
floats = st.floats(0, 1e6)
cards = st.builds(
    SampleProcessGpu,
    uuid=st.sampled_from(["GPU-1", "GPU-2"]),
    gpu_util=floats,
    gpu_memory=numbers,
    gpu_memory_util=floats,
)
processes = st.lists(
    st.builds(
        SampleProcess,
        resident_memory=numbers,
        virtual_memory=numbers,
        cmd=st.sampled_from("ab"),
        pid=st.integers(0, 4) | numbers,
        ppid=st.integers(0, 1),
        num_threads=numbers,
        cpu_avg=floats | st.integers(0, 9),  # nobody but us makes whole ones
        cpu_time=numbers,
        data_read=numbers,
        data_written=numbers,
        rolledup=st.integers(-1, 3),
        gpus=st.lists(cards, max_size=3).map(tuple),
    ),
    max_size=5,
).map(tuple)


def reported(summed: tuple[Any, Any, Any, Any]) -> list[object]:
    """Say everything about sums, whatever holds them."""
    levels, gained, on_cards, (keys, counters) = summed
    by_card = {uuid: list(card) for uuid, card in on_cards.items()}
    return [levels, gained, by_card, list(on_cards), keys, list(counters)]


@needs_kernel
@given(st.lists(processes, max_size=4))
def test_the_kernel_adds_up_as_its_twin_does(
    samples: list[tuple[SampleProcess, ...]],
) -> None:
    """To the last bit, sample after sample, whichever of them had summed up the one before."""
    before: list[sums.Seen | None] = [None]
    for sample in samples:
        made = [add_up(sample, seen) for seen in before]
        made += [in_python(add_up, sample, seen) for seen in before]
        assert all(reported(one) == reported(made[0]) for one in made)
        before = [made[0][3], made[-1][3]]


@needs_kernel
@given(st.lists(st.tuples(numbers, numbers), max_size=6), st.floats(1e-3, 1e3))
def test_the_kernel_shares_as_its_twin_does(pairs: list[tuple[int, int]], scale: float) -> None:
    """To the last bit."""
    now, before = tuple(pair[0] for pair in pairs), tuple(pair[1] for pair in pairs)
    assert shares(now, before, scale) == in_python(shares, now, before, scale)


@needs_kernel
@given(
    st.lists(
        st.integers(17, 23).map(lambda n: b"7" * n) | st.sampled_from([b"/", b":", b".", b"12"])
    ).map(b"".join)
    | st.binary()
)
@example(b"0" * 20)
@example(b"9" * 19)
@example(b"/" + b"5" * 20 + b":")
def test_the_kernel_finds_long_numbers_where_its_twin_does(raw: bytes) -> None:
    """Whatever stands before and after them; digits are ASCII's ten."""
    found = decoder._may_be_too_great(raw)
    assert found == in_python(decoder._may_be_too_great, raw)
    assert found == decoder._may_be_too_great(bytearray(raw))


@needs_kernel
def test_what_is_no_record_costs_an_error_not_the_process() -> None:
    """Whoever makes records by hand gets what Python says of them."""
    with pytest.raises(AttributeError):
        add_up((process(1, 1), object()), None)  # type: ignore[arg-type]
    for odd in ("7", None, 1.5):
        bad = replace(process(1, 1), resident_memory=odd)
        if isinstance(odd, float):
            assert add_up((bad,), None)[0][0] == 1024 * odd
        else:
            with pytest.raises(TypeError):
                add_up((bad,), None)


@needs_kernel
def test_nothing_leaks() -> None:
    """Keys, counters and sums of cards are all given back, and so is what a refusal had begun."""
    on = SampleProcessGpu(uuid="GPU-1", gpu_util=1.0)
    plain = (process(10**6, 1), SampleProcess(ppid=1, cmd="x", gpus=(on,)))
    odd = (*plain, process(1, 2**60))

    def work(times: int) -> int:
        seen = None
        for _ in range(times):
            *_, seen = add_up(plain, seen)
            add_up(plain[::-1], seen)
            add_up(odd, None)
            shares((10**6, 10**7), (5, 6), 0.5)
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

    before = work(2000)
    assert work(20_000) - before < 2**20
