"""Translators with a state in two processes' place: together they give what one alone gives."""

import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import msgspec
import pytest

from ccpipe.bus.codecs import Codec
from ccpipe.bus.codecs.line import LineCodec
from ccpipe.bus.codecs.sonar import SonarCodec
from ccpipe.bus.nats.sink import NatsSink
from ccpipe.bus.nats.source import NatsSource
from ccpipe.config import Duration, Site
from ccpipe.errors import ConfigError
from ccpipe.formats.lineprotocol import encode, to_lines
from ccpipe.formats.sonar import SampleProcess
from ccpipe.formats.sonar.envelopes import Envelopes
from ccpipe.message import Message, metric
from ccpipe.pipeline import HoldingTranslator, Limits, Translator, run
from ccpipe.telemetry import Telemetry
from ccpipe.translate.rules.aggregate import Aggregate
from ccpipe.translate.sonar.sonar_to_cc import SonarToCc
from tests.bus.nats.reader import partitioned
from tests.conftest import eventually
from tests.pipeline.parts import ListSink, running
from tests.translate.sonar.sonar_samples import START, job, sample

NODES = 12
ROUNDS = 4


def as_lines(records: Sequence[Message]) -> list[bytes]:
    return [encode([record]) for record in records]


def parts(round_: int) -> list[list[Message]]:
    """Return two messages of each node: half of the cores each."""
    return [
        [
            metric(
                "flops", float(core + node), time=(START + round_) * 10**9,
                tags={
                    "cluster": "fox.test", "hostname": f"n{node}",
                    "type": "hwthread", "type-id": f"{core}",
                },
            )
            for node in range(NODES)
            for core in range(first, first + 2)
        ]
        for first in (0, 2)
    ]  # fmt: skip


def samples(round_: int) -> list[list[Any]]:
    return [
        [
            sample(
                round_ * 10, cluster="fox.test", node=f"n{node}",
                jobs=(job(SampleProcess(pid=7, cpu_time=100 + round_ * (node + 1))),),
                cpus=(round_ * 10 * (node + 1),),
            )
            for node in range(NODES)
        ]
    ]  # fmt: skip


def aggregate() -> HoldingTranslator[Any, Any]:
    """Add up the parts of a node, which arrive in two messages."""
    return Aggregate(
        function="sum", of="hwthread", per="node", min_parts=4, hold_timeout=Duration(60)
    )


def counters() -> HoldingTranslator[Any, Any]:
    return SonarToCc(envelopes=False, jobs=False)


CASES: dict[
    str,
    tuple[Callable[[], HoldingTranslator[Any, Any]], Callable[[int], Any], Any, type[Codec[Any]]],
] = {
    "aggregate": (aggregate, parts, to_lines, LineCodec),
    "sonar_to_cc": (counters, samples, Envelopes, SonarCodec),
}


def shared(site: Site, codec: Codec[Any]) -> NatsSource:
    return NatsSource(
        site=site, telemetry=Telemetry(), durable="shared", codec=codec,
        ack_wait=Duration(2), subjects=["metrics" if isinstance(codec, LineCodec) else "sonar"],
    )  # fmt: skip


@contextlib.asynccontextmanager
async def bridge(
    site: Site, translator: Translator[Any, Any], codec: Codec[Any]
) -> AsyncIterator[ListSink]:
    """Run a bridge until it is left; records that its translator withholds are then written."""
    sink, limits = ListSink(), Limits(max_wait=0.05)
    async with running(shared(site, codec), sink, translators=[translator], limits=limits):
        yield sink


def with_nodes(site: Site) -> Site:
    subjects = {**site.bus.subjects, "sonar": "{cluster}.sonar.{name}.{hostname}"}
    return msgspec.structs.replace(site, bus=msgspec.structs.replace(site.bus, subjects=subjects))


@pytest.mark.parametrize("case", CASES)
async def test_two_processes_give_same_result_as_one(site: Site, case: str) -> None:
    """Each sees all messages of its nodes: withheld records meet later ones of the node."""
    make, records, type_, codec = CASES[case]
    wanted = with_nodes(partitioned(site, 4))
    alone, passed = make(), list[bytes]()
    async with contextlib.AsyncExitStack() as stack:
        both = [bridge(wanted, make(), codec()) for _ in range(2)]
        two = [await stack.enter_async_context(each) for each in both]
        async with NatsSink(site=wanted, telemetry=Telemetry(), codec=codec()) as sink:
            for part in (part for round_ in range(ROUNDS) for part in records(round_)):
                passed += as_lines(alone.feed(type_(part)))
                await sink.write(type_(part))
        await eventually(lambda: sum(len(each.written) for each in two) >= len(passed))
    expected = [*passed, *as_lines(alone.flush())]
    assert len(expected) > NODES * ROUNDS
    assert all(each.written for each in two)
    assert sorted(as_lines(two[0].written + two[1].written)) == sorted(expected)


async def test_second_process_is_refused_without_partitions(site: Site) -> None:
    """Both would get parts of one node."""
    async with bridge(site, aggregate(), LineCodec()) as first:
        async with NatsSink(site=site, telemetry=Telemetry()) as sink:
            await sink.write(to_lines(parts(0)[0]))
        await eventually(lambda: bool(first.written))
        with pytest.raises(ConfigError, match="must see all messages"):
            await run(shared(site, LineCodec()), ListSink(), translators=[aggregate()])
