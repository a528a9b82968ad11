"""``VictoriaMetricsSink`` against the real store, with the stored series compared."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.config import Interval
from ccpipe.errors import ConfigError, DeniedError, RejectedError, UnavailableError
from ccpipe.formats.lineprotocol import Precision, decode, encode, to_lines
from ccpipe.message import Message, Uint
from ccpipe.pipeline import Batch, Limits, run
from ccpipe.sinks.victoriametrics import VictoriaMetricsSink, payload
from tests.conftest import eventually, free_port
from tests.servers.victoriametrics import VictoriaMetrics, sample
from tests.sinks.answers import Answers
from tests.sinks.conftest import NOON, SECOND, Given, carry, carry_again, metric


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VictoriaMetrics]:
    with VictoriaMetrics(tmp_path_factory.mktemp("store") / "data") as store:
        yield store


@pytest.mark.parametrize("precision", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("compression", ["none", "gzip"])
async def test_checked_lines_are_sent_unchanged(
    store: VictoriaMetrics, precision: Precision, compression: Literal["none", "gzip"]
) -> None:
    """As the same bytes, for any unit of their timestamps."""
    name = f"through_{precision}_{compression}"
    digits = {"s": "", "ms": "123", "us": "123456", "ns": "123456789"}[precision]
    line = f"{name},hostname=n1,type-id=0,a=b\\ c value=1.5 1740052800{digits}\n".encode()
    lines = decode(line + b"bad line\n", precision=precision)
    assert payload(lines) == (line, precision)
    async with VictoriaMetricsSink(url=store.url, compression=compression) as sink:
        await sink.write(lines)
    stamp = 1740052800000 + (0 if precision == "s" else 123)
    labels = frozenset({("hostname", "n1"), ("type-id", "0"), ("a", "b c")})
    assert store.samples(name) == {(name, labels, 1.5, stamp)}


numbers = st.one_of(
    st.integers(-(10**11), 10**11).map(lambda n: n / 1000),
    st.integers(-(10**12), 10**12),
    st.integers(0, 10**12).map(Uint),
    st.booleans(),
)
labels = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=8).filter(
    lambda text: not text.endswith("\\") and "\\\\" not in text
)


@given(
    st.lists(st.tuples(numbers, st.integers(0, 10**6)), min_size=1, max_size=8),
    st.dictionaries(labels.map("l".__add__), labels, max_size=2),
    st.sampled_from(["s", "ms", "us", "ns"]),
    st.booleans(),
)
def test_victoriametrics_stores_records_exactly(
    store: VictoriaMetrics,
    points: list[tuple[float | int | bool, int]],
    tags: dict[str, str],
    precision: Precision,
    are_lines: bool,
) -> None:
    """Numbers of up to 12 digits, labels and milliseconds, as lines or messages."""
    name = f"sent_{time.time_ns()}"
    messages = [
        Message(name, tags | {"n": str(n)}, value, NOON + offset * 10**6)
        for n, (value, offset) in enumerate(points)
    ]

    async def send() -> None:
        async with VictoriaMetricsSink(url=store.url) as sink:
            if are_lines:
                lines = decode(encode(messages, precision=precision), precision=precision)
                await sink.write(lines)
                messages[:] = list(lines)
            else:
                await sink.write(to_lines(messages))

    asyncio.run(send())
    assert store.samples(name) == {sample(message) for message in messages}


async def test_numbers_store_misreads_are_rewritten(store: VictoriaMetrics) -> None:
    """``.5`` and ``1.`` are numbers, though the store reads 0."""
    numbers = {b".5": 0.5, b"-.5": -0.5, b"1.": 1.0, b"-12.": -12.0, b"1.e2": 100.0}
    lines = decode(
        b"".join(b"dots,n=%d value=%b 1740052800\n" % pair for pair in enumerate(numbers))
    )
    async with VictoriaMetricsSink(url=store.url) as sink:
        await sink.write(lines)
    kept = {(dict(tags)["n"], value) for _, tags, value, _ in store.samples("dots")}
    assert kept == {(str(n), value) for n, value in enumerate(numbers.values())}


async def test_field_name_is_part_of_series_name(store: VictoriaMetrics) -> None:
    """If it is not ``value``, alone in its line or not."""
    one, two = b"net,n=1 rx=1,value=3 1740052800\n", b"net,n=2 rx=2 1740052800\n"
    async with VictoriaMetricsSink(url=store.url) as sink:
        await sink.write(decode(one))
        await sink.write(decode(two))
        await sink.write(to_lines([Message("net", {"n": "3"}, 5.0, NOON, "tx")]))
    kept = {
        (name, dict(tags)["n"], value)
        for name, tags, value, _ in store.samples('{n!="",__name__=~"net.*"}')
    }
    assert kept == {("net_rx", "1", 1), ("net", "1", 3), ("net_rx", "2", 2), ("net_tx", "3", 5)}


async def test_texts_are_rejected(store: VictoriaMetrics) -> None:
    """The store would save a text as 0; it becomes a dead letter and the numbers are stored."""
    records = [metric(1.0, n="texts"), metric("text"), metric(2, n="texts"), metric("more")]
    async with VictoriaMetricsSink(url=store.url) as sink:
        with pytest.raises(RejectedError, match="not text") as caught:
            await sink.write(to_lines(records))
    assert caught.value.indices == [1, 3]
    letters = await carry(Given(to_lines(records)), VictoriaMetricsSink(url=store.url))
    assert [b'"text"' in letter.original for letter in letters] == [True, False]
    assert {value for _, _, value, _ in store.samples('{n="texts"}')} == {1.0, 2.0}


async def test_writes_continue_after_restart_of_store(tmp_path: Path) -> None:
    """While it is down writes may be retried; then it gets the missing ones."""
    store = VictoriaMetrics(tmp_path / "data")
    source = Given([metric(1.0)], [metric(2.0, time=NOON + SECOND)])
    try:
        await carry_again(source, VictoriaMetricsSink(url=store.url), store.start)
        assert {value for _, _, value, _ in store.samples()} == {1.0, 2.0}
        async with VictoriaMetricsSink(url=store.url) as sink:
            await sink.write(to_lines([metric(3.0)]))
            store.stop()
            with pytest.raises(UnavailableError, match=store.url):
                await sink.write(to_lines([metric(4.0, time=NOON + 2 * SECOND)]))
            store.start()
            await sink.write(to_lines([metric(4.0, time=NOON + 2 * SECOND)]))
        assert {value for _, _, value, _ in store.samples()} >= {2.0, 4.0}
    finally:
        store.stop()


async def test_read_only_store_is_retried(tmp_path: Path) -> None:
    with VictoriaMetrics(tmp_path / "data", "-storage.minFreeDiskSpaceBytes=1000000000000000") as s:
        async with VictoriaMetricsSink(url=s.url) as sink:
            with pytest.raises(UnavailableError, match="read-only"):
                await sink.write(to_lines([metric(1.0)]))


async def test_store_denies_wrong_credentials(tmp_path: Path) -> None:
    """Before anything starts; with the right ones it accepts writes."""
    secret = tmp_path / "secret"
    secret.write_text("pä:ss\n")
    flags = "-httpAuth.username=bridge", "-httpAuth.password=pä:ss"
    with VictoriaMetrics(tmp_path / "data", *flags) as store:
        mine = VictoriaMetricsSink(url=store.url, user="bridge", password_file=str(secret))
        async with mine as sink:
            await sink.write(to_lines([metric(1.0)]))
        with pytest.raises(DeniedError, match="401"):
            async with VictoriaMetricsSink(url=store.url):
                pass


async def test_check_requires_response_and_writes_nothing(store: VictoriaMetrics) -> None:
    before = store.samples()
    await VictoriaMetricsSink(url=store.url).check()
    assert store.samples() == before
    with pytest.raises(UnavailableError):
        await VictoriaMetricsSink(url=f"http://127.0.0.1:{free_port()}").check()
    with pytest.raises(ConfigError, match="does not accept our records"):
        await VictoriaMetricsSink(url=store.url + "/insert/0/influx").check()


BATCH = 100


class Flow(Given):
    """Yields batches until it is stopped; `acknowledged` has the numbers of those that are safe."""

    def __init__(self) -> None:
        super().__init__()
        self.stopped = asyncio.Event()
        self.number = 0

    async def batches(self) -> AsyncIterator[Batch[Any]]:
        while not self.stopped.is_set():
            number, self.number = self.number, self.number + 1
            times = range(number * BATCH, (number + 1) * BATCH)

            async def ack(number: int = number) -> None:
                self.acknowledged.append(number)

            records = to_lines(metric(float(i), time=NOON + i * SECOND) for i in times)
            yield Batch(records, ack, "flow")
            await asyncio.sleep(0.1)

    def stop(self) -> None:
        self.stopped.set()


def restart(store: VictoriaMetrics) -> None:
    store.process.kill()
    store.process.wait(60)
    store.start()


@pytest.mark.long
async def test_killed_store_loses_no_acknowledged_records(tmp_path: Path) -> None:
    """Killed while rows arrive, while they wait, and right after the last acknowledgement."""
    source = Flow()
    with VictoriaMetrics(tmp_path / "data") as store:
        sink = VictoriaMetricsSink(url=store.url, wait_for_flush=True)
        running = asyncio.create_task(
            run(source, sink, limits=Limits(max_wait=0.2, max_backoff=0.2))
        )
        for count in (20, 40):
            # Waiting for each batch to be safe before the next one is written would take minutes.
            await eventually(lambda count=count: source.number >= count or running.done(), 120)  # type: ignore[misc]
            await asyncio.to_thread(restart, store)
        source.stop()
        await running
        await asyncio.to_thread(restart, store)
        assert source.acknowledged == list(range(source.number))
        stored = {int(value) for _, _, value, _ in store.samples("cpu_load")}
        assert stored == set(range(source.number * BATCH))


@pytest.mark.parametrize(
    "page",
    [
        "<html>a login</html>",
        "vm_app_uptime_seconds 100\nvmagent_rows_inserted_total 5\n",
        'vm_rows{type="storage/small"} 5\n',
    ],
)
async def test_wait_for_flush_accepts_single_node_store_only(answers: Answers, page: str) -> None:
    """The metrics of an agent, a cluster's inserter or another server prove no sync."""
    answers.pages["/metrics"] = page
    with pytest.raises(
        ConfigError, match="wait_for_flush: .*/metrics does not belong to a single-node"
    ):
        await VictoriaMetricsSink(url=answers.url, wait_for_flush=True).check()
    await VictoriaMetricsSink(url=answers.url).check()


async def test_wait_for_flush_requires_readable_metrics(tmp_path: Path) -> None:
    """A store may protect them by a separate key; the bridge does not start."""
    with VictoriaMetrics(tmp_path / "data", "-metricsAuthKey=secret") as store:
        async with VictoriaMetricsSink(url=store.url):
            pass
        with pytest.raises(DeniedError, match=r"/metrics: 401 .*needed by wait_for_flush"):
            await VictoriaMetricsSink(url=store.url, wait_for_flush=True).__aenter__()


def test_rows_wait_in_stream_unless_they_wait_for_disk() -> None:
    """Four writes keep the store busy; rows that wait for the disk bound the rate of rows."""
    assert VictoriaMetricsSink().limits.max_memory == 4 * VictoriaMetricsSink().limits.max_bytes
    waiting = VictoriaMetricsSink(wait_for_flush=True).limits
    assert waiting.max_memory == Limits().max_memory
    assert waiting.max_records == VictoriaMetricsSink().limits.max_records


def test_flush_interval_determines_when_rows_are_acknowledged() -> None:
    """Two intervals and a few seconds; at once without `wait_for_flush`."""
    assert VictoriaMetricsSink(wait_for_flush=True).safe_after == 13
    assert VictoriaMetricsSink(wait_for_flush=True, flush_interval=Interval(1)).safe_after == 5
    assert VictoriaMetricsSink(flush_interval=Interval(1)).safe_after == 0
