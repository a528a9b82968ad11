"""The controls of ``ccpipe publish``."""

import json
import re
from collections.abc import Iterable
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest

from ccpipe.config import Bus, Interval, Publish, Site
from ccpipe.errors import ConfigError, DataError, UnavailableError
from ccpipe.formats.sonar import Envelope, ErrorObject, SysinfoAttributes, SysinfoData
from ccpipe.formats.sonar.types.meta import MetadataObject
from ccpipe.node.agent.controls import controls
from ccpipe.node.controls.control import Control, ControlChange
from tests.node.conftest import PACKED, unpack
from tests.node.controls.test_prefetchers import Machine
from tests.paths import ROOT

SITE = Site(
    cluster="fox",
    hostname="n1",
    bus=Bus(servers=["nats://me:hunter2@h:4222"], password_file="/etc/secret"),  # noqa: S106
    publish=Publish(interval=Interval(10), collectors={"disk": {"exclude": ["a"]}}),
)
NODE = SysinfoAttributes(
    time="2026-11-20T20:00:00+01:00", cluster="fox", node="n1", sockets=2, cores_per_socket=64,
    threads_per_core=2, cpu_model="EPYC", memory=1000, numa_nodes=8,
)  # fmt: skip
META = MetadataObject("sonar", "0.16.0")


class Agent:
    """A publisher with controls."""

    def __init__(self) -> None:
        self.set_to: list[float] = []
        self.described: Iterable[Envelope] = [Envelope(META, SysinfoData(NODE))]

    async def set_interval(self, seconds: float) -> None:
        if seconds < 1:
            raise ConfigError("interval is too short")
        self.set_to.append(seconds)

    def controls(self, root: Path) -> dict[str, Control]:
        return controls(
            site=lambda: SITE,
            collectors=lambda: {"cpu": {"interval": 10.0, "state": "on"}},
            sysinfo=lambda: self.described,
            set_interval=self.set_interval,
            root=str(root),
        )


@pytest.fixture
def agent() -> Agent:
    return Agent()


async def put(control: Control, value: str) -> Any:
    assert control.put is not None
    changed = control.put(value, {})
    assert not isinstance(changed, ControlChange)
    return await changed


def test_topology_has_keys_of_event_and_cc_node_controller(agent: Agent, tmp_path: Path) -> None:
    """Both sets of keys: cc-energy-manager reads ``hwthreads``."""
    unpack((PACKED / "hwthreads.txt").read_text(), tmp_path)
    reported = json.loads(agent.controls(tmp_path)["topology"].get({}))
    assert reported["socketsPerNode"] == 2
    assert [(t["cpu_id"], t["socket_id"]) for t in reported["hwthreads"]] == [
        (0, 0),
        (1, 1),
        (2, 0),
    ]
    assert reported["cpu_info"]["num_hwthreads"] == 3


def test_topology_fails_with_reason_when_sysinfo_fails(agent: Agent, tmp_path: Path) -> None:
    error = ErrorObject("2026-11-20T20:00:00+01:00", "no /proc/cpuinfo", "fox", "n1")
    agent.described = [Envelope(META, errors=(error,))]
    with pytest.raises(UnavailableError, match="no /proc/cpuinfo"):
        agent.controls(tmp_path)["topology"].get({})


def test_config_is_reported_without_secrets(agent: Agent, tmp_path: Path) -> None:
    text = agent.controls(tmp_path)["config"].get({})
    reported = json.loads(text)
    assert "hunter2" not in text
    assert reported["bus"]["servers"] == ["nats://***@h:4222"]
    assert reported["bus"]["password_file"] == "/etc/secret"  # noqa: S105
    assert reported["publish"]["interval"] == "10s"
    assert reported["publish"]["collectors"] == {"disk": {"exclude": ["a"]}}


def test_collectors_are_reported_with_states(agent: Agent, tmp_path: Path) -> None:
    reported = json.loads(agent.controls(tmp_path)["collectors"].get({}))
    assert reported == {"cpu": {"interval": 10.0, "state": "on"}}


async def test_interval_is_set_from_duration(agent: Agent, tmp_path: Path) -> None:
    interval = agent.controls(tmp_path)["interval"]
    assert interval.get({}) == "10s"
    assert await put(interval, "1m") == ControlChange("10s", "1m")
    assert agent.set_to == [60.0]


@pytest.mark.parametrize("value", ["1ms", "99ms", "400d", "86401"])
async def test_interval_beyond_bounds_is_refused(agent: Agent, tmp_path: Path, value: str) -> None:
    """A request can neither flood the broker nor switch metrics off."""
    with pytest.raises(DataError, match=f"interval {value} is not between 100ms and 1d"):
        await put(agent.controls(tmp_path)["interval"], value)
    assert agent.set_to == []
    assert await put(agent.controls(tmp_path)["interval"], "1d") == ControlChange("10s", "1d")


@pytest.mark.parametrize("value", ["0", "-1s", "soon", "", "500ms"])
async def test_invalid_interval_is_refused(agent: Agent, tmp_path: Path, value: str) -> None:
    with pytest.raises(ConfigError, match="interval"):
        await put(agent.controls(tmp_path)["interval"], value)
    assert agent.set_to == []


def test_node_has_controls_of_its_kernel_interfaces(agent: Agent, tmp_path: Path) -> None:
    assert {"rapl", "freq"} <= set(agent.controls(tmp_path))
    unpack((PACKED / "cpufreq.txt").read_text(), tmp_path)
    unpack((PACKED / "rapl-limits.txt").read_text(), tmp_path)
    assert {"rapl.pkg_limit_1", "freq.governor"} <= set(agent.controls(tmp_path))


def test_page_lists_every_control(agent: Agent, tmp_path: Path) -> None:
    for tree in ("cpufreq", "rapl-limits", "uncore-freq"):
        unpack((PACKED / f"{tree}.txt").read_text(), tmp_path)
    Machine(tmp_path)
    (tmp_path / "proc/driver/nvidia").mkdir(parents=True)
    (tmp_path / "proc/driver/nvidia/version").touch()
    page = (ROOT / "docs/node/control.md").read_text()
    rows = [row.split("|")[1:4] for row in page.splitlines() if row.startswith("| `")]
    settable = {
        pattern: can_be_set.strip() == "yes"
        for named, _, can_be_set in rows
        for pattern in re.findall("`(.+?)`", named)
    }
    reported = agent.controls(tmp_path)
    assert {"nvml", "prefetcher", "uncore_freq"} <= set(reported)
    for name, control in reported.items():
        found = [settable[pattern] for pattern in settable if fnmatchcase(name, pattern)]
        assert found == [control.put is not None], name
