"""``ccpipe.translate.rules.aggregate``: values of the parts, as one value of the whole."""

import logging
import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ccpipe.config import Duration
from ccpipe.errors import ConfigError
from ccpipe.formats.lineprotocol import Lines, decode, encode, to_lines
from ccpipe.message import Message, Uint, metric
from ccpipe.pipeline import Scope
from ccpipe.registry import construct
from ccpipe.translate.rules.aggregate import Aggregate

TOPOLOGY = [
    {"hwthread": "0", "socket": "0", "memoryDomain": "0"},
    {"hwthread": "1", "socket": "0", "memoryDomain": "1"},
    {"hwthread": "2", "socket": "1", "memoryDomain": "2"},
    {"hwthread": "3", "socket": "1", "memoryDomain": "2"},
    {"memoryDomain": "0", "socket": "0"},
    {"accelerator": "00000000:C1:00.0", "socket": "1"},
]


def hwthread(number: int, value: float, name: str = "flops_any", **tags: str) -> Message:
    tags = {"hostname": "a", "type": "hwthread", "type-id": str(number), **tags}
    return metric(name, value, time=10, tags=tags)


def made(records: Sequence[Message], **options: Any) -> list[Message]:
    options = {"function": "sum", "of": "hwthread", "per": "node", **options}
    passed = list(Aggregate(**options).feed(to_lines(records)))
    assert passed[: len(records)] == list(records)
    return passed[len(records) :]


THREADS = [hwthread(0, 1.5), hwthread(1, 2.5), hwthread(2, 4.0), hwthread(3, 0.0)]


@pytest.mark.parametrize(
    ("function", "expected"),
    [("sum", 8.0), ("min", 0.0), ("max", 4.0), ("mean", 2.0), ("count", 4)],
)
def test_aggregate_sums_hardware_threads_of_node(function: str, expected: float) -> None:
    """The aggregate has the same name, time and tags, except type and number, after the batch."""
    assert made(THREADS, function=function) == [
        Message("flops_any", {"hostname": "a", "type": "node"}, expected, 10)
    ]


def test_aggregate_sums_parts_of_each_socket() -> None:
    """By the topology; hardware threads and NUMA domains alike."""
    tags = {"hostname": "a", "type": "socket"}
    assert made(THREADS, per="socket", topology=TOPOLOGY) == [
        Message("flops_any", {**tags, "type-id": "0"}, 4.0, 10),
        Message("flops_any", {**tags, "type-id": "1"}, 4.0, 10),
    ]
    domains = [(m.tags["type-id"], m.value) for m in made(THREADS, per="memoryDomain",
                                                          topology=TOPOLOGY)]  # fmt: skip
    assert domains == [("0", 1.5), ("1", 2.5), ("2", 4.0)]
    gpu = metric("p", 3, time=10, tags={"type": "accelerator", "type-id": "00000000:C1:00.0"})
    (whole,) = made([gpu], of="accelerator", per="socket", topology=TOPOLOGY)
    assert (whole.tags, whole.value) == ({"type": "socket", "type-id": "1"}, 3)


def test_aggregate_separates_metrics_nodes_tags_and_times() -> None:
    """A late value has a sum of its own."""
    records = [
        hwthread(0, 1.0),
        hwthread(1, 1.0, "clock"),
        hwthread(2, 1.0, hostname="b"),
        hwthread(3, 1.0, stype="job", **{"stype-id": "7"}),
        Message("flops_any", hwthread(1, 1.0).tags, 5.0, 20),
        Message("flops_any", hwthread(1, 1.0).tags, 7.0),
        hwthread(1, 2.0),
    ]
    sums = [(m.name, m.hostname, m.tags.get("stype"), m.time, m.value) for m in made(records)]
    assert sums == [
        ("flops_any", "a", None, 10, 3.0),
        ("clock", "a", None, 10, 1.0),
        ("flops_any", "b", None, 10, 1.0),
        ("flops_any", "a", "job", 10, 1.0),
        ("flops_any", "a", None, 20, 5.0),
        ("flops_any", "a", None, None, 7.0),
    ]


def test_aggregate_counts_only_numbers_of_metrics() -> None:
    """Texts, booleans, other fields and other types are not parts."""
    others = [
        Message("flops_any", hwthread(1, 1.0).tags, "x", 10),
        Message("flops_any", hwthread(1, 1.0).tags, True, 10),
        Message("flops_any", hwthread(1, 1.0).tags, 9.0, 10, "other"),
        metric("flops_any", 9.0, time=10, tags={"hostname": "a", "type": "core", "type-id": "0"}),
    ]
    assert made(others) == []
    (whole,) = made([*others, hwthread(0, 1.5)])
    assert whole.value == 1.5


def test_aggregate_never_replaces_measured_metric(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """This is logged once; under another name both exist."""
    node = metric("flops_any", 99.0, time=10, tags={"hostname": "a", "type": "node"})
    with caplog.at_level(logging.WARNING):
        rule = Aggregate(function="sum", of="hwthread", per="node")
        for records in (to_lines([*THREADS, node]), to_lines([node, *THREADS])):
            assert rule.feed(records) is records
    assert caplog.messages == [
        "aggregate of hwthread per node: flops_any is measured for the node already"
    ]
    (whole,) = made([node, *THREADS], name="*_sum")
    assert (whole.name, whole.value) == ("flops_any_sum", 8.0)
    earlier = metric("flops_any", 99.0, time=9, tags={"hostname": "a", "type": "node"})
    assert made([earlier, *THREADS])[0].value == 8.0


def test_aggregate_joins_metrics_without_star_in_name() -> None:
    """Power of processors and memory, for example."""
    sockets = [
        metric(name, value, time=10, tags={"type": "socket", "type-id": number})
        for name, value, number in (("cpu_power", 90, "0"), ("cpu_power", 95, "1"),
                                    ("mem_power", 10, "0"))
    ]  # fmt: skip
    assert made(sockets, of="socket", name="node_power") == [
        Message("node_power", {"type": "node"}, 195, 10)
    ]
    assert made(sockets, of="socket", names=["cpu_*"])[0].value == 185


def test_aggregate_requires_minimum_of_parts() -> None:
    """Available parts are aggregated; `min_parts` requires a number of them."""
    assert made(THREADS[:3], min_parts=4) == []
    assert made(THREADS[:3], min_parts=3)[0].value == 8.0
    assert made(THREADS[:1])[0].value == 1.5


def test_aggregate_omits_and_logs_part_missing_in_topology(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A processor that was added later has no known socket."""
    with caplog.at_level(logging.WARNING):
        assert made([hwthread(0, 1.0), hwthread(9, 1.0)], per="socket", topology=TOPOLOGY) == [
            Message("flops_any", {"hostname": "a", "type": "socket", "type-id": "0"}, 1.0, 10)
        ]
    assert set(caplog.messages) == {
        "aggregate of hwthread per socket: hwthread '9' is left out: its socket is not known"
    }


def test_count_has_no_unit() -> None:
    """Other aggregates keep the unit of their parts."""
    parts = [hwthread(0, 1.0, unit="MHz"), hwthread(1, 2.0, unit="MHz")]
    assert made(parts, function="max")[0].tags["unit"] == "MHz"
    assert "unit" not in made(parts, function="count")[0].tags


def device(number: str, value: float, name: str = "net_bytes_in", **tags: str) -> Message:
    tags = {"hostname": "a", "type": "node", "stype": "network", "stype-id": number, **tags}
    return metric(name, value, time=10, tags=tags)


def test_aggregate_joins_devices_over_stype() -> None:
    """Parts differ in stype and stype-id only; the aggregate keeps type and all other tags."""
    socket = {"type": "socket", "type-id": "1"}
    records = [
        device("eth0", 1),
        device("eth1", 2),
        device("eth0", 5, "net_bytes_out"),
        device("eth0", 7, hostname="b"),
        device("s1", 40.0, "temperature", stype="sensor", **socket),
        device("s2", 50.0, "temperature", stype="sensor", **socket),
        hwthread(0, 9.0),
    ]
    tags = {"hostname": "a", "type": "node"}
    assert made(records, of="stype", per=None) == [
        Message("net_bytes_in", tags, 3, 10),
        Message("net_bytes_out", tags, 5, 10),
        Message("net_bytes_in", {**tags, "hostname": "b"}, 7, 10),
        Message("temperature", {"hostname": "a", **socket}, 90.0, 10),
    ]
    (only,) = made(records, of="stype", per=None, tags={"type": "socket"}, function="mean")
    assert only.value == 45.0
    node = metric("net_bytes_in", 99, time=10, tags=tags)
    assert made([node, device("eth0", 1)], of="stype", per=None) == []


def held(**options: Any) -> tuple[Aggregate, list[float]]:
    """Return an aggregate that waits two seconds, and the clock that it reads."""
    rule = Aggregate(function="sum", of="stype", hold_timeout=Duration(2), **options)
    now = [100.0]
    rule.clock = lambda: now[0]
    return rule, now


def test_aggregate_with_hold_joins_parts_of_several_batches() -> None:
    """A node's sample may arrive in several messages; a repeated part counts once."""
    rule, now = held()
    assert list(rule.feed(to_lines([device("eth0", 1)]))) == [device("eth0", 1)]
    assert rule.oldest_held() == 1
    now[0] += 1.5
    later = [device("eth1", 2), device("eth0", 1), device("eth0", 7, hostname="b")]
    assert list(rule.feed(to_lines(later))) == later
    assert rule.oldest_held() == 1
    now[0] += 1.5
    whole = Message("net_bytes_in", {"hostname": "a", "type": "node"}, 3, 10)
    assert list(rule.feed(Lines())) == [whole]
    assert rule.oldest_held() == 2
    assert [message.value for message in rule.flush()] == [7]
    assert rule.oldest_held() is None


def test_aggregate_sends_oldest_beyond_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond a number of aggregates the oldest are sent early."""
    monkeypatch.setattr("ccpipe.translate.rules.aggregate._MAX_HELD", 10)
    rule, _ = held()
    for number in range(15):
        records = [device("eth0", number, f"m{number}")]
        assert len(rule.feed(to_lines(records))) == (1 if number < 10 else 2)
    assert len(rule.flush()) == 10


INTEGERS = st.integers(-(2**63), 2**63 - 1)
UINTS = st.integers(0, 2**64 - 1).map(Uint)
FLOATS = st.floats(allow_nan=False, allow_infinity=False)


@given(st.lists(INTEGERS, min_size=1) | st.lists(UINTS, min_size=1))
def test_aggregate_adds_integers_exactly(values: list[int]) -> None:
    """The sum has their type if it fits into 64 bits; a mean is rounded once."""
    parts = [hwthread(number, value) for number, value in enumerate(values)]
    (total,) = made(parts)
    assert total.value == sum(values) or type(total.value) is float
    if type(total.value) is float:
        assert not -(2**63) <= sum(values) < 2**64
        assert total.value == float(sum(values))
    elif -(2**63) <= sum(values) < 2**63:
        assert type(total.value) is type(values[0])
    assert made(parts, function="mean")[0].value == float(Fraction(sum(values), len(values)))
    for function, expected in (("min", min(values)), ("max", max(values))):
        (minimum,) = made(parts, function=function)
        assert (minimum.value, type(minimum.value)) == (expected, type(values[0]))


@given(st.lists(FLOATS | INTEGERS, min_size=1), st.sampled_from(("sum", "mean")))
@example([2.0**1023, math.nextafter(2.0**1023, 0), 2**62, -4.9896007738368e291], "sum")
@example([1e308, 1e308, -1e308], "mean")
@example([1e308, 1e308], "sum")
def test_sum_is_independent_of_order(values: list[float], function: str) -> None:
    """Floats are added up without rounding in between; only an infinite sum is left out."""
    parts = [hwthread(number, value) for number, value in enumerate(values)]
    there = [message.value for message in made(parts, function=function)]
    assert there == [message.value for message in made(parts[::-1], function=function)]
    assert all(math.isfinite(float(value)) for value in there)
    if not there:
        with pytest.raises(OverflowError):
            float(sum(Fraction(float(value)) for value in values))


def test_aggregate_follows_rows_of_columns() -> None:
    """The decoded rows are encoded with them; their old bytes do not pass through."""
    lines = decode(
        b"m,hostname=a,type=hwthread,type-id=0 value=1i 1740027951\n"
        b"m,hostname=a,type=hwthread,type-id=1 value=2i 1740027951\n"
    )
    passed = Aggregate(function="sum", of="hwthread", per="node").feed(lines)
    assert isinstance(passed, Lines)
    assert passed.passthrough() is None
    assert encode(passed).splitlines()[2:] == [b"m,hostname=a,type=node value=3i 1740027951"]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"per": "socket"}, "per: the topology does not assign each hwthread to a socket"),
        ({"per": "llc", "topology": TOPOLOGY}, "does not assign each hwthread to a llc"),
        ({"of": "socket", "per": "memoryDomain", "topology": TOPOLOGY},
         "per: socket 0 is in more than one memoryDomain"),
        ({"per": None}, "per: is missing"),
        ({"of": "stype"}, 'per: cannot be used with of = "stype"'),
        ({"of": "socket", "per": "socket"}, "per: a socket is not part of a socket"),
        ({"name": ""}, "name: '' cannot be a name"),
        ({"function": "median"}, "function: .*'median'"),
        ({"of": "node"}, "of: .*'node'"),
    ],
)  # fmt: skip
def test_aggregate_rejects_invalid_configuration(options: dict[str, Any], reason: str) -> None:
    """A bridge does not know a node's topology; the error names where to get it."""
    options = {"function": "sum", "of": "hwthread", "per": "node", **options}
    with pytest.raises(ConfigError, match=rf"^r\.toml: translate\[0\].*{reason}"):
        construct(Aggregate, options, where="r.toml", path="translate[0]", context={})


def test_aggregate_with_hold_requires_all_messages_of_node() -> None:
    """Without `hold_timeout` any process may have any batch."""
    options = {"function": "sum", "of": "hwthread", "per": "node"}
    assert Aggregate(**options).scope == Scope.RECORD  # type: ignore[arg-type]
    held = Aggregate(**options, hold_timeout=Duration(1))  # type: ignore[arg-type]
    assert held.scope == Scope.NODE
