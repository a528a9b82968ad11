"""``ccpipe config clustercockpit``: valid for ClusterCockpit, and true to the publisher."""

import asyncio
import json
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from referencing import Registry
from referencing.jsonschema import DRAFT202012

from ccpipe.bus.nats.server import NatsServer
from ccpipe.bus.nats.sink import NatsSink
from ccpipe.config import Site
from ccpipe.formats.lineprotocol import to_lines
from ccpipe.message import Message, metric
from ccpipe.telemetry import Telemetry
from tests.cli.command import ccpipe
from tests.paths import TEST_DATA

SCHEMAS = {
    name: json.loads((TEST_DATA / "clustercockpit" / f"{name}.schema.json").read_text())
    for name in ("cluster", "unit")
}
STORE = {"type": "object", "required": ["frequency", "aggregation"],
         "properties": {"frequency": {"type": "integer", "minimum": 1},
                        "aggregation": {"enum": ["sum", "avg"]}}}  # fmt: skip


def printed(*arguments: str, **environ: str) -> dict[str, Any]:
    done = ccpipe("config", "clustercockpit", *arguments, stdin=b"", **environ)
    assert done.code == 0, done.err
    found: dict[str, Any] = json.loads(done.out)
    return found


def scopes(*arguments: str) -> dict[str, str]:
    return {each["name"]: each["scope"] for each in printed(*arguments)["metricConfig"]}


@pytest.mark.parametrize("patterns", [("--all",), ("*",)])
def test_configuration_is_valid_for_cc_lib_schema(patterns: tuple[str, ...]) -> None:
    """cc-backend checks cluster.json with cc-lib's schema before it starts."""
    found = printed(*patterns)
    unit = {key: value for key, value in SCHEMAS["unit"].items() if key != "$schema"}
    registry: Registry[Any] = Registry[Any]().with_resource(
        "embedfs://unit.schema.json", DRAFT202012.create_resource(unit)
    )
    schema = SCHEMAS["cluster"]["properties"]["metricConfig"]
    jsonschema.Draft202012Validator(schema, registry=registry).validate(found["metricConfig"])
    for config in found["metrics"].values():
        jsonschema.validate(config, STORE)
    assert [each["name"] for each in found["metricConfig"]] == list(found["metrics"])
    assert len(found["metrics"]) > 100


def test_metric_of_two_collectors_is_printed_once() -> None:
    """With unit, aggregation, footprint and thresholds."""
    rows = printed("--all")["metricConfig"]
    found = {each["name"]: each for each in rows}
    assert len(rows) == len(found)
    assert "flops_any" in found
    used = found["mem_used"]
    assert used["unit"] == {"base": "B", "prefix": "K"}
    assert (used["aggregation"], used["footprint"], used["scope"]) == ("sum", "max", "node")
    assert found["clock"]["unit"] == {"base": "Hz", "prefix": "M"}
    assert found["clock"]["aggregation"] == "avg"
    assert found["cpu_power"]["energy"] == "power"
    assert found["ipc"]["unit"] == {"base": "IPC"}
    assert (found["cpu_user"]["peak"], found["cpu_load"]["peak"]) == (100, 0)


def test_scopes_and_steps_follow_configuration(tmp_path: Path) -> None:
    """A disabled collector is left out; options decide the scope, intervals the time step."""
    path = tmp_path / "ccpipe.toml"
    path.write_text(
        """
        [publish]
        interval = "20s"
        [publish.collectors]
        cpu = { hwthreads = true, interval = "2500ms" }
        clock = { hwthreads = false }
        memory = { domains = true }
        load = { enabled = false }
        """
    )
    found = printed("--all", "--config", str(path))
    by_name = {each["name"]: each for each in found["metricConfig"]}
    assert by_name["cpu_user"]["scope"] == "hwthread"
    assert by_name["num_cpus"]["scope"] == "node"
    assert by_name["clock"]["scope"] == "node"
    assert by_name["mem_used"]["scope"] == "memoryDomain"
    assert by_name["mem_available"]["scope"] == "node"
    assert "cpu_load" not in by_name
    assert (found["metrics"]["cpu_user"]["frequency"], by_name["clock"]["timestep"]) == (3, 20)


def test_device_metrics_are_left_out_unless_named() -> None:
    """The store would write all network interfaces of a node into one series."""
    assert "net_bytes_in_bw" not in scopes("--all")
    assert set(scopes("net_*_bw")) == {
        f"net_{what}_{way}_bw" for what in ("bytes", "pkts") for way in ("in", "out")
    }
    done = ccpipe("config", "clustercockpit", "--all")
    assert "left out, because the store would mix their devices" in done.err


def test_string_metrics_are_left_out(tmp_path: Path) -> None:
    """cc-metric-store rejects a payload with a string in a metric that it is configured for."""
    path = tmp_path / "ccpipe.toml"
    path.write_text("[publish.collectors.topprocs]\nenabled = true\n")
    done = ccpipe("publish", "--once", "--dry-run", "--config", str(path))
    assert "topproc1," in done.out
    for arguments in ([], ["--all"]):
        found = printed(*arguments, "--config", str(path))["metrics"]
        assert "self_mem_used" in found
        assert not [name for name in found if name.startswith("topproc")]
    assert "topproc" not in ccpipe("config", "clustercockpit", "--config", str(path)).err


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["cpuload"], "no metric matches cpuload"),
        (["--since", "1h", "cpu_*"], "--since excludes"),  # names are of all, sent or not
    ],
)
def test_wrong_arguments_are_rejected(arguments: list[str], reason: str) -> None:
    """A pattern without a match; --since with names."""
    done = ccpipe("config", "clustercockpit", *arguments)
    assert (done.code, done.out) == (64, "")
    assert reason in done.err


PROFILE = """
cluster = "fritz"
[publish]
profile = "clustercockpit"
[[publish.translate]]
use = "rename"
names = { cpu_load = "load_one" }
"""


def test_printed_metrics_equal_published_ones(tmp_path: Path) -> None:
    """With the site's rules; cc-backend calls a node partially monitored that lacks a metric."""
    (tmp_path / "ccpipe.toml").write_text(PROFILE)
    config = ("--config", str(tmp_path / "ccpipe.toml"))
    sent = defaultdict(set)
    lines = ccpipe("publish", "--once", "--dry-run", "-o", "json", *config).out.splitlines()
    for message in map(json.loads, lines):
        sent[message["name"]].add(message["tags"]["type"])
    assert len(sent) > 20
    known = scopes(*config)
    assert "net_bytes_in" in known  # the sum over devices
    assert known.keys() == sent.keys() - {"load_one"}
    assert {name: scope for name, scope in known.items() if scope not in sent[name]} == {}
    assert "declares them: load_one" in ccpipe("config", "clustercockpit", *config).err
    assert known.keys() < scopes("--all", *config).keys()


def test_printed_scopes_equal_published_ones() -> None:
    """For every metric of this machine there is data of the printed scope."""
    sent = defaultdict(set)
    lines = ccpipe("publish", "--once", "--dry-run", "-o", "json").out.splitlines()
    for message in map(json.loads, lines):
        if "stype" not in message["tags"]:
            sent[message["name"]].add(message["tags"]["type"])
    known = scopes("--all")
    assert len(sent) > 20
    assert {name: known[name] for name in sent if known[name] not in sent[name]} == {}


async def test_since_prints_metrics_stored_on_bus(nats_server: NatsServer, site: Site) -> None:
    """Of the given period, from all nodes of the cluster."""
    now = time.time_ns()

    def sent(name: str, node: str, kind: str, seconds: int) -> Message:
        tags = {"cluster": site.cluster, "hostname": node, "type": kind, "type-id": "0"}
        return metric(name, 1.0, time=now - seconds * 10**9, tags=tags)

    records = [
        sent("mem_used", "n1", "node", 5),
        sent("cpu_user", "n1", "node", 5),
        sent("cpu_user", "n2", "hwthread", 5),
        sent("nv_util", "gpu1", "accelerator", 5),
        sent("own", "n1", "node", 5),
    ]
    async with NatsSink(site=site, telemetry=Telemetry()) as sink:
        while not sink.bus.is_connected:
            await asyncio.sleep(0.01)
        await sink.write(to_lines(records))
    done = await asyncio.to_thread(
        ccpipe, "config", "clustercockpit", "--since", "1h",
        "--server", nats_server.url, "--cluster", site.cluster,
    )  # fmt: skip
    assert done.code == 0, done.err
    found = {each["name"]: each["scope"] for each in json.loads(done.out)["metricConfig"]}
    assert found == {"mem_used": "node", "cpu_user": "hwthread", "nv_util": "accelerator"}
    assert "own" in done.err
