"""What a publisher's configuration names: collectors, their intervals, broken plug-ins."""

import importlib
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from ccpipe.config import Duration, Publish, Site, SonarOptions
from ccpipe.errors import ConfigError
from ccpipe.message import Message
from ccpipe.node.agent.parts import AgentParts
from ccpipe.node.linux import proc
from ccpipe.node.sampling.metrics import units
from ccpipe.telemetry import Telemetry

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
def test_a_broken_plug_in_is_off_with_one_line(caplog: pytest.LogCaptureFixture) -> None:
    """One that fails to import, lacks its class or fails to construct; the others are made."""
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
def test_a_broken_plug_in_that_is_disabled_is_not_imported(
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
def test_wrong_options_are_fatal_with_a_suggestion(table: dict[str, Any], text: str) -> None:
    """Among the collector's own options and those that every collector has."""
    with pytest.raises(ConfigError) as caught:
        parts_of(collectors=table)
    assert text in str(caught.value)


def test_a_group_is_asked_member_by_member() -> None:
    """Each command has a name and a thread of its own, and the interval of the group."""
    table = {"commands": {"fans": ["true"], "doors": ["true"]}, "interval": "60s"}
    settings = parts_of(collectors={"command": table}).of_metrics()
    assert {"command.fans", "command.doors"} <= settings.collectors.keys()
    assert "command" not in settings.collectors
    assert settings.intervals["command.fans"] == settings.intervals["command.doors"] == 60
    assert settings.intervals["ipmi"] == 60


def test_parts_with_the_same_options_stay_the_same_objects() -> None:
    """So that they keep their counters over a reload."""
    first = parts_of()
    second = parts_of(first, collectors={"disk": {"exclude": ["sdz"]}, "cpu": {"interval": "5s"}})
    same = {name for name, one in first.collectors.items() if second.collectors[name] is one}
    assert first.collectors.keys() - same == {"disk"}


def test_without_any_collector_there_are_still_envelopes() -> None:
    """A publisher may be Sonar's only; one that publishes nothing at all is a mistake."""
    off = {name: {"enabled": False} for name in NAMES}
    assert parts_of(collectors=off).of_metrics().collectors == {}
    silent = SonarOptions(sample=Duration(0), sysinfo=Duration(0))
    with pytest.raises(ConfigError, match="every collector and envelope is disabled"):
        parts_of(collectors=off, sonar=silent)


def test_the_portable_collector_stands_in_where_there_is_no_proc(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On Linux it is off unless it is enabled; without /proc there are no envelopes of Sonar's."""
    assert "portable" not in parts_of().collectors
    assert "portable" in parts_of(collectors={"portable": {"enabled": True}}).collectors
    monkeypatch.setattr(proc, "is_there", lambda: False)
    parts = parts_of()
    assert parts.sonar == {}
    values = {m.name: m for m in parts.collectors["portable"].collect(1) if isinstance(m, Message)}
    assert {"cpu_load", "mem_used", "num_cpus"} <= values.keys()
