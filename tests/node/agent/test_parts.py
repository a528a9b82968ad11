"""Parts of a publisher's configuration: collectors, intervals, broken plug-ins, profiles."""

import importlib
import sys
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from ccpipe.config import Duration, Publish, Site, SonarOptions, load
from ccpipe.errors import ConfigError
from ccpipe.formats.lineprotocol import Lines, to_lines
from ccpipe.message import Message
from ccpipe.node.agent.parts import (
    AVERAGED,
    CLUSTERCOCKPIT,
    DISKS,
    VIRTUAL_INTERFACES,
    AgentParts,
    translators,
    with_profile,
)
from ccpipe.node.linux import proc
from ccpipe.node.sampling.collector import declared, units
from ccpipe.pipeline import Stages
from ccpipe.registry import construct, find
from ccpipe.telemetry import Telemetry
from tests.node.conftest import Root
from tests.paths import ROOT

NAMES = sorted(entry.name for entry in metadata.entry_points(group="ccpipe.collectors"))

PLUG_IN = """
import os

class Good:
    def collect(self, time):
        return []

class Refusing:
    def __init__(self, *, level: int = 1) -> None:
        raise RuntimeError("no luck")

    def collect(self, time):
        return []
"""
BROKEN = "raise ValueError('broken at import')\n"


def parts_of(before: AgentParts | None = None, **publish: Any) -> AgentParts:
    return AgentParts.of(Site(publish=Publish(**publish)), None, Telemetry(), before)


@pytest.fixture
def plug_ins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "site_plug_in.py").write_text(PLUG_IN)
    (tmp_path / "site_broken.py").write_text(BROKEN)
    information = tmp_path / "site_plug_in-1.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: site-plug-in\nVersion: 1\n")
    (information / "entry_points.txt").write_text(
        "[ccpipe.collectors]\n"
        "good = site_plug_in:Good\n"
        "refusing = site_plug_in:Refusing\n"
        "missing = site_plug_in:Missing\n"
        "broken = site_broken:Broken\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()
    yield
    for name in ("site_plug_in", "site_broken"):
        sys.modules.pop(name, None)


@pytest.mark.usefixtures("plug_ins")
def test_broken_plug_in_is_disabled_with_warning(caplog: pytest.LogCaptureFixture) -> None:
    """It fails to import, lacks its class or fails to construct; the others are constructed."""
    made = parts_of(collectors={"refusing": {"level": 2}}).collectors
    assert {"good", "cpu"} <= made.keys()
    assert not {"refusing", "missing", "broken"} & made.keys()
    lines = sorted(record.message for record in caplog.records)
    assert [line.partition(" cannot be used: ")[0] for line in lines] == [
        "collector broken is off: site_broken:Broken",
        "collector missing is off: site_plug_in:Missing",
        "collector refusing is off: site_plug_in:Refusing",
    ]
    assert "ValueError: broken at import" in lines[0]
    assert "RuntimeError: no luck" in lines[2]
    assert units()["mem_used"] == "kB"


@pytest.mark.usefixtures("plug_ins")
def test_disabled_plug_in_is_not_imported(
    caplog: pytest.LogCaptureFixture,
) -> None:
    off = {"enabled": False}
    parts_of(collectors=dict.fromkeys(("refusing", "missing", "broken"), off))
    assert caplog.records == []
    assert "site_broken" not in sys.modules


@pytest.mark.parametrize(
    ("table", "text"),
    [
        ({"cpu": {"intervall": "5s"}}, "unknown key 'intervall'; did you mean 'interval'?"),
        ({"cpu": {"enable": True}}, "unknown key 'enable'; did you mean 'enabled'?"),
        ({"cpu": {"hwthread": []}}, "unknown key 'hwthread'; did you mean 'hwthreads'?"),
        ({"cpu": {"x": 1}}, "known are enabled, hwthreads, interval, root"),
        ({"cpu": {"enabled": "perhaps"}}, "publish.collectors.cpu.enabled"),
        ({"cpu": {"interval": "soon"}}, "publish.collectors.cpu.interval"),
        ({"memry": {}}, "did you mean 'memory'"),
    ],
)
def test_unknown_option_raises_with_suggestion(table: dict[str, Any], text: str) -> None:
    """Suggestions include the collector's own options and the common ones."""
    with pytest.raises(ConfigError) as caught:
        parts_of(collectors=table)
    assert text in str(caught.value)


def test_group_is_split_into_members() -> None:
    """Each command has its own name and thread, and the interval of the group."""
    table = {"commands": {"fans": ["true"], "doors": ["true"]}, "interval": "60s"}
    settings = parts_of(collectors={"command": table}).of_metrics()
    assert {"command.fans", "command.doors"} <= settings.collectors.keys()
    assert "command" not in settings.collectors
    assert settings.intervals["command.fans"] == settings.intervals["command.doors"] == 60
    assert settings.intervals["ipmi"] == 60


def test_parts_with_unchanged_options_are_reused() -> None:
    """They keep their counters over a reload."""
    first = parts_of()
    second = parts_of(first, collectors={"disk": {"exclude": ["sdz"]}, "cpu": {"interval": "5s"}})
    same = {name for name, one in first.collectors.items() if second.collectors[name] is one}
    assert first.collectors.keys() - same == {"disk"}


def test_envelopes_suffice_without_collectors() -> None:
    """A publisher without collectors and envelopes is a configuration error."""
    off = {name: {"enabled": False} for name in NAMES}
    assert parts_of(collectors=off).of_metrics().collectors == {}
    silent = SonarOptions(sample_interval=Duration(0), sysinfo_interval=Duration(0))
    with pytest.raises(ConfigError, match="every collector and envelope is disabled"):
        parts_of(collectors=off, sonar=silent)


def test_portable_collector_replaces_others_without_proc(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On Linux it is off by default; without /proc there are no Sonar envelopes."""
    assert "portable" not in parts_of().collectors
    assert "portable" in parts_of(collectors={"portable": {"enabled": True}}).collectors
    monkeypatch.setattr(proc, "is_there", lambda: False)
    parts = parts_of()
    assert parts.sonar == {}
    values = {m.name: m for m in parts.collectors["portable"].collect(1) if isinstance(m, Message)}
    assert {"cpu_load", "mem_used", "num_cpus"} <= values.keys()


def test_collector_for_servers_is_off_by_default() -> None:
    assert "lustre_jobstats" not in parts_of().collectors
    made = parts_of(collectors={"lustre_jobstats": {"enabled": True, "max_jobs": 5}})
    assert "lustre_jobstats" in made.collectors
    assert made.intervals["lustre_jobstats"] == 60


SITE = Site(publish=Publish(profile="clustercockpit"))
TREES = {
    "disk": "captured",
    "infiniband": "infiniband",
    "lustre": "lustre",
    "network": "captured",
    "nfs": "nfs",
    "slurm_cgroup": "cgroup-v2",
    "temperature": "hwmon",
}


def stored_as(message: Message) -> tuple[object, ...]:
    """Return cc-metric-store's key of a metric: its node and name, not its device."""
    part = [message.tags.get(tag) for tag in ("type", "type-id", "stype", "stype-id")]
    return (message.name, message.hostname, *(part if part[0] != "node" else ()), message.time)


def mixed(messages: Iterable[Message]) -> set[str]:
    """Return the names of metrics of which the store would mix several series."""
    return {key[0] for key, count in Counter(map(stored_as, messages)).items() if count > 1}  # type: ignore[misc]


def sample(root: Root, site: Site) -> list[Message]:
    found: list[Message] = []
    for name, tree in TREES.items():
        own = {**site.publish.collectors.get(name, {}), "root": str(root)}
        collector = construct(
            find("collectors", name, ""), own, where="test", path=name, context={}
        )
        for reading in ("first", "second"):
            root.show(f"{tree}/{reading}")
            if name == "slurm_cgroup":  # an unpacked copy, which lacks this file
                online = root.path / "sys/devices/system/cpu/online"
                online.parent.mkdir(parents=True, exist_ok=True)
                online.write_text("0-3\n")
            sent = list(collector.collect(10**9))
        found += sent
    return found


def test_clustercockpit_profile_sends_no_series_the_store_mixes(root: Root) -> None:
    """Devices are summed or averaged, jobs dropped; nothing else is lost."""
    site = with_profile(SITE)
    sent = sample(root, site)
    assert {"net_bytes_in", "temperature", "ib_recv"} <= mixed(sent)
    assert "job_mem_used" in mixed(sample(root, SITE))
    left: Any = to_lines(sent)
    rules = translators(site.publish.translate, where="test", path="translate", context={})
    for rule in Stages(rules, Lines).translators:
        left = rule.feed(left)
    assert mixed(left) == set()
    jobs = {m.name for m in sent if m.tags.get("stype") == "job"}
    assert jobs
    assert {m.name for m in sent} - {m.name for m in left} == jobs
    assert all("stype" not in m.tags for m in left if m.tags["type"] == "node")
    for name, is_mean in (("net_bytes_in", False), ("temperature", True)):
        parts = values(sent, name)
        assert len(parts) > 1
        assert values(left, name) == pytest.approx([sum(parts) / (len(parts) if is_mean else 1)])


def values(messages: Iterable[Message], name: str) -> list[float]:
    return [float(m.value) for m in messages if m.name == name and m.tags["type"] == "node"]


def test_profile_averages_units_that_cannot_be_summed() -> None:
    """By the units that collectors declare, as in ``ccpipe config clustercockpit``."""
    averaged = {
        row.name
        for row in declared()
        if row.stype not in ("", "job", "mig", "nvlink")
        and "node" in row.types
        and row.unit
        and row.is_averaged
    }
    assert averaged == set(AVERAGED)


def test_recipe_has_rules_of_profile() -> None:
    """Except for the time to wait for a sample split over several messages."""
    recipe = tomllib.loads((ROOT / "bridges/clustercockpit.toml").read_text())
    rules = [dict(table) for table in recipe["translate"]]
    for table in rules:
        table.pop("hold_timeout", None)
        table.pop("kinds", None)
    assert rules == [dict(table) for table in CLUSTERCOCKPIT.translate]
    assert recipe["sink"]["codec"]["precision"] == CLUSTERCOCKPIT.precision


def test_site_options_override_profile() -> None:
    """The site's collector options and precision win; its rules are applied first."""
    table = {"use": "drop", "names": ["x"]}
    publish = Publish(
        profile="clustercockpit",
        precision="ms",
        collectors={"slurm_cgroup": {"hwthreads": False}, "cpu": {"interval": "5s"}},
        translate=[table],
    )
    found = with_profile(Site(publish=publish)).publish
    assert found.precision == "ms"
    assert found.collectors["cpu"] == {"interval": "5s"}
    assert found.collectors["slurm_cgroup"] == {"hwthreads": False}
    assert found.translate == [table, *CLUSTERCOCKPIT.translate]
    assert with_profile(Site()) == Site()
    assert with_profile(SITE).publish.precision == "s"
    made = AgentParts.of(with_profile(SITE), None, Telemetry())
    assert len(made.translators) == len(CLUSTERCOCKPIT.translate)


@pytest.mark.parametrize(
    ("name", "patterns", "chosen", "others"),
    [
        (
            "disk", DISKS,
            ["sda", "sdaa", "vda", "nvme0n1", "nvme10n12", "mmcblk0"],
            ["sda1", "sdaa10", "vda2", "nvme0n1p1", "nvme0n1p12", "mmcblk0p1", "dm-0", "md127"],
        ),
        (
            "network", VIRTUAL_INTERFACES,
            ["lo", "bond0", "br0", "br-0a1b", "docker0", "veth12", "eth0.100"],
            ["eth0", "eno1", "enp1s0f0", "ib0", "broadcom0", "hsn0"],
        ),
    ],
)  # fmt: skip
def test_profile_excludes_partitions_and_virtual_interfaces(
    name: str, patterns: tuple[str, ...], chosen: list[str], others: list[str]
) -> None:
    """Partitions and bonds would be counted twice."""
    options = CLUSTERCOCKPIT.collectors[name]
    assert list(options.values()) == [list(patterns)]
    assert [one for one in chosen + others if proc.matches(one, patterns)] == chosen


def test_unknown_profile_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "ccpipe.toml"
    path.write_text('[publish]\nprofile = "influx"\n')
    with pytest.raises(ConfigError, match=r"publish\.profile"):
        load(path, Site, environ={})
