"""Sums over all nodes from every store, equal to those added up here, value by value."""

import math
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence

import numpy as np
import pytest

from ccpipe.errors import UsageError
from ccpipe.history.interfaces import MAX_SUM_POINTS, NodeSum, SumCurves, SumQuery
from ccpipe.history.sums import sum_windows
from tests.history.conftest import BEGIN, STORES, Open

POWER = NodeSum(("cpu_power", "nv_power_usage"), whole="platform_power")
SPEED = NodeSum(("flops_any",))
SPAN = 3600
NODES = ("n1", "n2", "n3", "n4")

Sample = tuple[str, str, str, int, float]


def made(interval: int) -> Iterator[Sample]:
    """Yield metric, node, tags, second and value.

    n1 and n2 send the power of two sockets, and n2 of a GPU as well; n3 sends that of its platform
    too, which includes them; n4 sends a sum beside the values of its hardware threads. At first n2
    misses a sample now and then.
    """
    for second in range(-1200, SPAN + 600, interval):
        wave = round(64 * math.sin(second / 500))
        for number, node in enumerate(NODES):
            if node == "n2" and second < 800 and second // interval % 7 == 3:
                continue
            for socket in (0, 1):
                tags = f"type=socket,type-id={socket}"
                yield "cpu_power", node, tags, second, 100.0 + wave + 8 * number + socket
            if node == "n2":
                yield "nv_power_usage", node, "type=accelerator,type-id=0", second, 300.0 + wave
            if node == "n3":
                yield "platform_power", node, "type=node", second, 1000.0 + wave
            for thread in range(2):
                tags = f"type=hwthread,type-id={thread}"
                yield "flops_any", node, tags, second, 10.0 + thread + number
            if node == "n4":
                yield "flops_any", node, "type=node", second, 500.0 + wave


def lines(samples: Sequence[Sample], cluster: str = "fox") -> list[str]:
    return [
        f"{metric},cluster={cluster},hostname={node},{tags} value={number!r} {BEGIN + second}"
        for metric, node, tags, second, number in samples
    ]


def counts(metric: str, node: str, tags: str) -> bool:
    """Return whether a sample of `made` is part of a sum."""
    if node == "n3" and metric.endswith(("power", "usage")):
        return metric == "platform_power"
    return not (node == "n4" and metric == "flops_any" and "hwthread" in tags)


def expected(samples: Sequence[Sample], begin: float, width: float) -> tuple[float, float]:
    """Return the sums of power and speed of one window."""
    series: dict[tuple[str, str, str], list[float]] = defaultdict(list)
    for metric, node, tags, second, number in samples:
        if begin <= BEGIN + second < begin + width and counts(metric, node, tags):
            series[metric, node, tags].append(number)
    power = [sum(v) / len(v) for (metric, *_), v in series.items() if metric != "flops_any"]
    speed = [sum(v) / len(v) for (metric, *_), v in series.items() if metric == "flops_any"]
    return sum(power), sum(speed)


def query(start: float, stop: float, **more: object) -> SumQuery:
    asked: dict[str, object] = {"cluster": "fox", "sums": (POWER, SPEED), **more}
    return SumQuery(start=BEGIN + start, stop=BEGIN + stop, **asked)  # type: ignore[arg-type]


def check(found: SumCurves, samples: Sequence[Sample], width: float) -> int:
    """Compare all values; return how many there are."""
    assert not np.isnan(found.values).any()
    for place, begin in enumerate(found.times):
        sums = [column[place] for column in found.values]
        assert sums == pytest.approx(expected(samples, begin, width), rel=1e-9), begin - BEGIN
    return len(found.times) * len(found.values)


@pytest.mark.parametrize(
    "interval", [2, *(pytest.param(each, marks=pytest.mark.long) for each in (10, 60)), 90]
)
@pytest.mark.parametrize("store", STORES)
async def test_sums_equal_stored_values_at_interval(
    stored: Open, store: str, interval: int
) -> None:
    """Of whole steps at first; of the first two intervals where a step has more than four."""
    samples = list(made(interval))
    history = await stored(store, lines(samples))
    found = await history.sums(query(0, SPAN))
    assert found.step == max(math.ceil(SPAN / MAX_SUM_POINTS), 2 * interval)
    width = found.step if found.step <= 4 * interval else 2 * interval
    assert check(found, samples, width) >= 2 * (SPAN // found.step - 1)
    found = await history.sums(query(0, SPAN, max_points=5))
    assert found.step == SPAN / 5
    width = found.step if found.step <= 4 * interval else 2 * interval
    assert check(found, samples, width) >= 2 * 5


@pytest.mark.parametrize("store", STORES)
async def test_sums_are_of_cluster_or_all(stored: Open, store: str) -> None:
    """Nodes of one name in two clusters are two; there is none of an unknown cluster."""
    samples = list(made(60))
    history = await stored(store, [*lines(samples), *lines(samples, "bear")])
    one = await history.sums(query(0, SPAN))
    both = await history.sums(query(0, SPAN, cluster=None))
    check(one, samples, one.step)
    for single, double in zip(one.values, both.values, strict=True):
        assert double == pytest.approx(2 * single)
    none = await history.sums(query(0, SPAN, cluster='fox"} or {x="'))
    assert np.isnan(none.values).all()


@pytest.mark.parametrize("store", STORES)
async def test_sums_end_where_values_may_be_on_their_way(stored: Open, store: str) -> None:
    """A step that has not ended, or is so recent that some nodes have not sent, is not shown."""
    samples = list(made(60))
    history = await stored(store, lines(samples))
    found = await history.sums(query(0, time.time() + 900 - BEGIN))
    assert found.times[-1] + found.step <= time.time() - 60
    known = ~np.isnan(found.values[0])
    last = found.times[known][-1]
    assert last + found.step <= BEGIN + SPAN + 600 + found.step
    gap = await history.sums(query(-30 * 86400, -20 * 86400))
    assert np.isnan(gap.values).all()


@pytest.mark.parametrize("store", ["parquet", "postgres"])
async def test_last_step_is_dropped_if_its_end_is_missing(stored: Open, store: str) -> None:
    """The bridge has not written it yet: some nodes' values are there, others' are not."""
    samples = [each for each in made(60) if each[3] < SPAN + 10]
    history = await stored(store, lines(samples))
    found = await history.sums(query(0, SPAN + 600))
    known = ~np.isnan(found.values[0])
    [last] = [at for at in found.times if at <= BEGIN + SPAN < at + found.step]
    assert known[found.times < last].all()
    assert not known[found.times >= last].any()


@pytest.mark.parametrize("store", STORES)
async def test_sums_reject_query_out_of_bounds(stored: Open, store: str) -> None:
    history = await stored(store, lines(list(made(90))))
    for asked in (
        query(10, 10), query(0, 2**40), query(0, 60, max_points=0), query(0, 60, sums=()),
        query(0, 60, sums=(SPEED, SPEED)),
    ):  # fmt: skip
        with pytest.raises(UsageError):
            await history.sums(asked)


def test_windows_read_as_much_of_any_time() -> None:
    """A year costs as much as a day: two intervals of each step."""
    for days in (1, 7, 30, 366):
        windows = sum_windows(query(-days * 86400, 0), 60.0)
        assert windows.count in (MAX_SUM_POINTS, MAX_SUM_POINTS + 1)
        assert windows.width == 120
        spans = list(windows.spans())
        assert len(spans) == windows.count
        assert sum(stop - start for start, stop in spans) == windows.count * 120
