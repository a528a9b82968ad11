"""Sonar's description of a node."""

import base64
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from ccpipe.formats.sonar import SysinfoAttributes
from ccpipe.node.collectors.sonar.sysinfo import SonarSysinfo
from tests.conftest import program
from tests.node.collectors.sonar.strict import strict
from tests.node.conftest import Root, unpack
from tests.node.fake_nvml import Card, install

SLOT = 1_740_027_950 * 10**9


def made(root: object = "/", **options: Any) -> SonarSysinfo:
    return SonarSysinfo(cluster="fox.test", node="n1", root=str(root), **options)


def described(collector: SonarSysinfo) -> SysinfoAttributes:
    [envelope] = collector.collect(SLOT)
    data = strict(envelope).data
    assert data is not None
    assert isinstance(data.attributes, SysinfoAttributes)
    return data.attributes


def test_a_node_describes_itself(root: Root) -> None:
    """All that the specification asks for; lstopo knows nothing of a captured tree."""
    root.show("topology/first")
    reported = described(made(root))
    assert (reported.cluster, reported.node) == ("fox.test", "n1")
    assert (reported.sockets, reported.cores_per_socket, reported.threads_per_core) == (2, 3, 2)
    assert (reported.os_name, reported.architecture, reported.memory) == (
        "Linux",
        "x86_64",
        263_921_456,
    )
    assert (reported.numa_nodes, reported.distances[0]) == (4, (10, 12, 32, 32))
    assert (reported.topo_svg, reported.topo_text, reported.cards) == ("", "", ())


def test_cards_are_described(root: Root, monkeypatch: pytest.MonkeyPatch) -> None:
    root.show("topology/first")
    lost = Card("00000000:C1:00.0", "GPU-b", is_lost=True)
    install(monkeypatch, root.path, Card("00000000:01:00.0", "GPU-a", {"GetName": "H100"}), lost)
    data, errors = made(root).collect(SLOT)
    strict(errors)
    assert strict(data).data.attributes.cards[0].model == "H100"  # type: ignore[union-attr]
    assert [error.detail for error in errors.errors] == ["NVIDIA card 1: GPU is lost"]


def test_what_cannot_be_described_is_an_envelope_of_errors(tmp_path: Path) -> None:
    [envelope] = made(unpack("@ first\n## /proc/x\n\n@ second\n", tmp_path)).collect(SLOT)
    strict(envelope)
    assert envelope.data is None
    assert "proc/sys/kernel/ostype" in envelope.errors[0].detail


def test_this_machine_describes_itself() -> None:
    """By the specification's rules."""
    reported = described(made(lstopo=False))
    assert reported.sockets * reported.cores_per_socket * reported.threads_per_core
    assert reported.topo_svg == ""


def test_the_real_lstopo_draws_and_writes_the_topology() -> None:
    """In base 64; one is a picture, the other a text."""
    program("lstopo-no-graphics", "hwloc-nox")
    reported = described(made())
    picture = ET.fromstring(base64.b64decode(reported.topo_svg))  # noqa: S314 - of a program that we ran
    assert picture.tag.endswith("svg")
    assert base64.b64decode(reported.topo_text).decode().startswith("Machine (")


def test_a_node_without_lstopo_has_no_drawings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    reported = described(made())
    assert (reported.topo_svg, reported.topo_text) == ("", "")


def test_an_lstopo_that_fails_costs_its_drawings_only(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Its arguments are told as they are; what it complains of is told as an error."""
    script = tmp_path / "lstopo"
    script.write_text('#!/bin/sh\n[ "$2" = svg ] && exit 3\necho "$@"\n')
    script.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    data, errors = made().collect(SLOT)
    reported = strict(data).data.attributes  # type: ignore[union-attr]
    assert isinstance(reported, SysinfoAttributes)
    assert base64.b64decode(reported.topo_text) == b"--of console -\n"
    assert reported.topo_svg == ""
    [error] = errors.errors
    assert "ended with 3" in error.detail


def test_a_drawing_without_end_is_cut_off(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    script = tmp_path / "lstopo"
    script.write_text(
        "#!/bin/sh\nwhile echo xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx; do :; done\n"
    )
    script.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    data, errors = made().collect(SLOT)
    assert strict(data).data.attributes.topo_text == ""  # type: ignore[union-attr]
    [error] = errors.errors
    assert "printed more than 262144 bytes" in error.detail
