"""The same data through every store: curves, statistics, parts, restrictions."""

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pytest

from ccpipe.errors import UsageError
from ccpipe.history import promql
from ccpipe.history.interfaces import MetricCurves, MetricQuery, MetricStatistics
from tests.history.conftest import BEGIN, STORES, Open

NODES = ("n1", "n2", "n3")
SPAN = 3600
PARTS = {"power": ("socket", 2), "flops": ("hwthread", 4), "ipc": ("hwthread", 4)}

Values = Mapping[tuple[str, str], Mapping[int, float]]


def value(metric: str, node: str, second: int, part: int = 0) -> float:
    """Return a value that differs for all, exact in binary."""
    wave = round(64 * math.sin(second / 500 + len(metric)))
    return 100 + wave + 8 * int(node[1:]) + 2 * part


def made(interval: int) -> Iterator[tuple[str, str, str, int, float]]:
    """Yield metric, node, tags, second and value, of a node longer than of the query's time."""
    for second in range(-600, SPAN + 600, interval):
        for node in NODES:
            yield "load", node, "type=node", second, value("load", node, second)
            for metric, (kind, count) in PARTS.items():
                for part in range(count):
                    tags = f"type={kind},type-id={part}"
                    yield metric, node, tags, second, value(metric, node, second, part)


def lines(interval: int) -> list[str]:
    return [
        f"{metric},cluster=fox,hostname={node},{tags} value={number!r} {BEGIN + second}"
        for metric, node, tags, second, number in made(interval)
    ]


def expected(interval: int, start: int, stop: int, owned: Sequence[int] = range(4)) -> Values:
    """Return the value of each node at each second, by node and metric."""
    found: dict[tuple[str, str], dict[int, list[float]]] = {}
    for metric, node, tags, second, number in made(interval):
        part = int(tags.rpartition("=")[2]) if "id" in tags else 0
        if start <= second < stop and ("hwthread" not in tags or part in owned):
            found.setdefault((node, metric), {}).setdefault(second, []).append(number)
    return {
        key: {at: sum(n) / (len(n) if key[1] == "ipc" else 1) for at, n in of_key.items()}
        for key, of_key in found.items()
    }


def query(start: float, stop: float, **more: object) -> MetricQuery:
    asked: dict[str, object] = {"cluster": "fox", "nodes": NODES}
    return MetricQuery(start=BEGIN + start, stop=BEGIN + stop, **(asked | more))  # type: ignore[arg-type]


def by_key(rows: Sequence[MetricStatistics]) -> Mapping[tuple[str, str, str], MetricStatistics]:
    return {(row.hostname, row.metric, row.part): row for row in rows}


def check_curves(found: MetricCurves, values: Values, interval: int, start: int) -> None:
    assert {(c.hostname, c.metric) for c in found.curves} == set(values)
    assert len(found.curves) == len(values)
    assert found.step >= interval
    assert np.allclose(np.diff(found.times), found.step)
    for curve in found.curves:
        of_series = values[curve.hostname, curve.metric]
        for place, mean in enumerate(curve.values):
            begin = start + place * found.step
            inside = [v for at, v in of_series.items() if begin <= at < begin + found.step]
            if inside:
                assert mean == pytest.approx(sum(inside) / len(inside), rel=1e-12)
        assert not np.isnan(curve.values).any()


@pytest.mark.parametrize(
    "interval", [2, *(pytest.param(each, marks=pytest.mark.long) for each in (10, 60)), 90]
)
@pytest.mark.parametrize("store", STORES)
async def test_history_equals_stored_values_at_interval(
    stored: Open, store: str, interval: int
) -> None:
    """Curves are means of intervals without a gap; statistics are those of all values."""
    history = await stored(store, lines(interval))
    for start, stop in ((0, SPAN), (360, 1517), (360, 780)):
        asked = query(start, stop)
        values = expected(interval, start, stop)
        check_curves(await history.curves(asked), values, interval, start)
        statistics = by_key(await history.statistics(asked))
        assert set(statistics) == {(node, metric, "") for node, metric in values}
        for (node, metric), of_series in values.items():
            row = statistics[node, metric, ""]
            numbers = list(of_series.values())
            assert (row.count, row.minimum) == (len(numbers), min(numbers))
            assert row.maximum == max(numbers)
            assert row.mean == pytest.approx(sum(numbers) / len(numbers), rel=1e-12)


@pytest.mark.parametrize("store", STORES)
async def test_history_counts_owned_hwthreads_only_when_restricted(
    stored: Open, store: str
) -> None:
    """Metrics of other parts are of the whole node, and say so."""
    history = await stored(store, lines(60))
    asked = query(0, 1200, nodes=["n2"], hwthreads={"n2": [1, 3]})
    values = expected(60, 0, 1200, owned=[1, 3])
    found = await history.curves(asked)
    check_curves(found, {key: v for key, v in values.items() if key[0] == "n2"}, 60, 0)
    assert {c.metric for c in found.curves if c.is_restricted} == {"flops", "ipc"}
    rows = by_key(await history.statistics(asked))
    assert {metric for (_, metric, _), row in rows.items() if row.is_restricted} == {"flops", "ipc"}
    for metric in ("flops", "ipc", "load"):
        numbers = list(values["n2", metric].values())
        assert rows["n2", metric, ""].maximum == pytest.approx(max(numbers))


@pytest.mark.parametrize("store", STORES)
async def test_history_combines_nodes(stored: Open, store: str) -> None:
    """One curve of each metric, with mean, minimum and maximum."""
    history = await stored(store, lines(60))
    found = await history.curves(query(0, 1200, over_nodes=True, metrics=["power"]))
    [curve] = found.curves
    assert (curve.hostname, curve.metric, curve.part) == ("", "power", "")
    assert curve.minimum is not None
    assert curve.maximum is not None
    values = expected(60, 0, 1200)
    for place, second in enumerate(range(0, 1200, 60)):
        of_nodes = [values[node, "power"][second] for node in NODES]
        assert curve.minimum[place] == pytest.approx(min(of_nodes))
        assert curve.values[place] == pytest.approx(sum(of_nodes) / 3)
        assert curve.maximum[place] == pytest.approx(max(of_nodes))


@pytest.mark.parametrize("store", STORES)
async def test_history_has_parts_but_hwthreads(stored: Open, store: str) -> None:
    """Sockets are shown besides their sum; threads are too many."""
    history = await stored(store, lines(60))
    asked = query(0, 600, nodes=["n1"], has_parts=True)
    keys = {("load", ""), ("power", ""), ("power", "socket 0"), ("power", "socket 1"),
            ("flops", ""), ("ipc", "")}  # fmt: skip
    curves = (await history.curves(asked)).curves
    assert {(c.metric, c.part) for c in curves} == keys
    [second] = [c for c in curves if c.part == "socket 1"]
    assert second.values[0] == value("power", "n1", 0, 1)
    rows = by_key(await history.statistics(asked))
    assert {(metric, part) for _, metric, part in rows} == keys
    numbers = [value("power", "n1", at, 1) for at in range(0, 600, 60)]
    assert rows["n1", "power", "socket 1"].mean == pytest.approx(sum(numbers) / 10)


@pytest.mark.parametrize("store", STORES)
async def test_history_fills_short_gaps_only(stored: Open, store: str) -> None:
    """One sample is missing, then two, then the node is off."""
    seconds = [s for s in range(0, 1200, 60) if s not in (120, 360, 420) and s < 900]
    made = [f"load,cluster=fox,hostname=n1 value={s} {BEGIN + s}" for s in seconds]
    history = await stored(store, made)
    [curve] = (await history.curves(query(0, 1200, nodes=["n1"], max_points=20))).curves
    assert curve.values[2] == pytest.approx(120)
    assert np.flatnonzero(np.isnan(curve.values)).tolist() == [6, 7, 15, 16, 17, 18, 19]


async def test_history_rejects_too_large_answer(
    stored: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a store over HTTP it is not read to its end."""
    history = await stored("victoriametrics", lines(60))
    monkeypatch.setattr(promql, "MAX_BYTES", 500)
    with pytest.raises(UsageError, match="too large; select a shorter time"):
        await history.curves(query(0, 600))


@pytest.mark.parametrize("store", STORES)
async def test_history_of_unknown_data_is_empty(stored: Open, store: str) -> None:
    """Another cluster, node, metric or time; names are never part of a query's syntax."""
    history = await stored(store, lines(60))
    for asked in (
        query(0, 600, cluster="bear"),
        query(0, 600, nodes=['n1" or "1"="1', "n1') OR 1=1 --", "n."]),
        query(0, 600, metrics=['load"} or {x="', "load' OR '1'='1"]),
        query(-7000, -6000),
    ):
        assert (await history.curves(asked)).curves == []
        assert list(await history.statistics(asked)) == []


@pytest.mark.parametrize("store", STORES)
async def test_history_rejects_query_out_of_bounds(stored: Open, store: str) -> None:
    """Times and nodes are limited."""
    history = await stored(store, lines(90))
    for asked in (
        query(10, 10), query(10, 5), query(0, 2**40), query(math.nan, 5), query(0, 1, nodes=[]),
        query(0, 1, nodes=["n"] * 100_000), query(0, 1, max_points=0),
    ):  # fmt: skip
        with pytest.raises(UsageError, match="at most|from 1 to"):
            await history.curves(asked)
        with pytest.raises(UsageError, match="at most|from 1 to"):
            await history.statistics(asked)
    with pytest.raises(UsageError, match="from 1 to 64 nodes at once, got 65"):
        await history.curves(query(0, 1, nodes=["n"] * 65))
