"""``PrometheusSink`` against the real Prometheus: what is sent is what it keeps."""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ccpipe.config import Duration
from ccpipe.errors import RejectedError, UnavailableError
from ccpipe.formats.lineprotocol import Lines, SeriesTable, decode, to_lines
from ccpipe.formats.prometheus import labels_of
from ccpipe.message import Message
from ccpipe.sinks.prometheus import LiveSeries, PrometheusSink
from tests.conftest import free_port
from tests.servers.prometheus import Prometheus
from tests.sinks.answers import Answers
from tests.sinks.conftest import SECOND, Given, carry, carry_again, metric, names

NOW = int(time.time()) * SECOND - 600 * SECOND
"""Prometheus takes samples of about the last hour only."""


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """One store for all tests that keep their names apart; it takes late samples."""
    with Prometheus(tmp_path_factory.mktemp("store") / "prometheus", late=True) as store:
        yield store


def sink_of(store: Prometheus, stale_after: float = 0) -> PrometheusSink:
    return PrometheusSink(url=store.url, timeout=Duration(60), stale_after=Duration(stale_after))


@settings(max_examples=40)
@given(
    st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**53), 2**53) | st.booleans(),
    st.dictionaries(names, names, max_size=3),
    st.integers(0, 999),
    st.sampled_from(["value", "rx"]),
)
def test_what_is_sent_is_what_it_keeps(
    store: Prometheus, value: float, tags: dict[str, str], millis: int, field: str
) -> None:
    """Doubles, milliseconds, and any name and tag in the characters that Prometheus allows."""
    message = Message(f"sent.{time.time_ns()}", tags, value, NOW + millis * 10**6, field)

    async def send() -> None:
        async with sink_of(store) as sink:
            await sink.write(to_lines([message]))

    asyncio.run(send())
    lines = to_lines([message])
    labels = labels_of(lines.table.series[lines.series[0]], field)
    (kept,) = store.query(f"{labels['__name__']}[1m]", NOW / SECOND + 1)
    assert kept[0] == labels
    ((when, text),) = kept[1]
    assert (round(when * 1000), float(text)) == (NOW // 10**6 + millis, float(value))


async def test_texts_are_refused(store: Prometheus) -> None:
    """They become dead letters and the numbers arrive."""
    records = [metric(1.0, time=NOW, n="texts"), metric("text", time=NOW)]
    async with sink_of(store) as sink:
        with pytest.raises(RejectedError, match="Prometheus stores numbers") as caught:
            await sink.write(to_lines(records))
    assert caught.value.indices == [1]
    letters = await carry(Given(to_lines(records)), sink_of(store))
    assert [b'"text"' in letter.original for letter in letters] == [True]
    assert len(store.query('cpu_load{n="texts"}', NOW / SECOND)) == 1


async def test_samples_that_come_again_or_late(store: Prometheus) -> None:
    """With a window for late samples the store takes both, and what comes twice is kept once."""
    records = [Message("late", {}, float(n), NOW + n * SECOND) for n in range(5)]
    letters = await carry(Given(records, records[:3], records), sink_of(store))
    assert letters == []
    ((_, values),) = store.query("late[1m]", NOW / SECOND + 10)
    assert [float(value) for _, value in values] == [0, 1, 2, 3, 4]


async def test_late_samples_at_a_store_without_a_window(tmp_path: Path) -> None:
    """They are dead letters with the store's own words; what is new is kept."""
    with Prometheus(tmp_path / "prometheus") as store:
        async with sink_of(store) as sink:
            await sink.write(to_lines([Message("late", {"n": "1"}, 1.0, NOW)]))
        records = [Message("late", {"n": "1"}, 1.0, NOW - SECOND), Message("late", {}, 2.0, NOW)]
        letters = await carry(Given(records), sink_of(store))
        assert [(letter.original[:8], "out of order" in letter.reason) for letter in letters] == [
            (b"late,n=1", True)
        ]
        assert len(store.query("late", NOW / SECOND)) == 2


async def test_a_series_that_ends(store: Prometheus) -> None:
    """A marker ends it: queries show it no more, while the others go on."""
    begin = time.time_ns() - 20 * SECOND
    async with sink_of(store, stale_after=10) as sink:
        await sink.write(to_lines([Message("ends", {"n": n}, 1.0, begin) for n in ("1", "2")]))
        await sink.write(to_lines([Message("ends", {"n": "2"}, 2.0, begin + 19 * SECOND)]))
    at = begin / SECOND
    assert [labels["n"] for labels, _ in store.query("ends", at + 5)] == ["1", "2"]
    assert [labels["n"] for labels, _ in store.query("ends", at + 19.5)] == ["2"]


def test_series_are_known_in_a_new_table_too() -> None:
    """A decoder numbers series anew once in a while; an ended one is not forgotten for that."""
    live = LiveSeries(10 * SECOND)
    assert live.ended(decode(b"a,n=1 value=1 100\n"), 101 * SECOND) is None
    other = Lines(b"", SeriesTable())
    other.append(other.table.add(b"b"), other.table.add_field(b"value"), 1.0, 120 * SECOND)
    markers = live.ended(other, 121 * SECOND)
    assert markers is not None
    assert [(m.name, m.tags, m.time) for m in markers] == [("a", {"n": "1"}, 110 * SECOND)]
    assert live.ended(other, 125 * SECOND) is None


async def test_a_store_that_goes_and_comes_back(tmp_path: Path) -> None:
    """While it is down writes may be tried again; back, it gets what it missed."""
    store = Prometheus(tmp_path / "prometheus")
    source = Given([metric(1.0, time=NOW)], [metric(2.0, time=NOW + SECOND)])
    try:
        await carry_again(source, sink_of(store), store.start)
        ((_, values),) = store.query("cpu_load[1m]", NOW / SECOND + 1)
        assert [float(value) for _, value in values] == [1, 2]
    finally:
        store.stop()


async def test_check(store: Prometheus) -> None:
    """``check()`` says whether the address takes remote write, without sending any."""
    await sink_of(store).check()
    with pytest.raises(UnavailableError, match="404"):
        await PrometheusSink(url=store.url, path="/api/v1/push").check()
    with pytest.raises(UnavailableError):
        await PrometheusSink(url=f"http://127.0.0.1:{free_port()}").check()


async def test_a_prometheus_that_takes_no_remote_write(tmp_path: Path) -> None:
    """Its own words say which flag is missing."""
    store = Prometheus(tmp_path / "prometheus")
    store.command.remove("--web.enable-remote-write-receiver")
    with store, pytest.raises(UnavailableError, match="needs to be enabled with --"):
        await sink_of(store).check()


async def test_receipts(answers: Answers) -> None:
    """204 and an empty 200 are, as Mimir sends it; a page is not."""
    answers.status = 200
    async with PrometheusSink(url=answers.url, tenant="hpc") as sink:
        await sink.write(to_lines([metric(1.0)]))
        answers.text = "<html>Please log in</html>"
        with pytest.raises(UnavailableError, match="log in"):
            await sink.write(to_lines([metric(1.0)]))
    headers = answers.requests[-1].headers
    assert headers["X-Scope-OrgID"] == "hpc"
    assert headers["Content-Encoding"] == "snappy"
