"""The node in Sonar's envelopes: its description and its state; times and errors of both."""

import base64
import os
import re
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.errors import DataError, MissingExtra
from ccpipe.formats.sonar import (
    Envelope,
    SampleDisk,
    SampleSystem,
    SysinfoAttributes,
    decode,
    encode,
    timestamp,
)
from ccpipe.node.collectors.sonar.envelope import Errors, local
from ccpipe.node.collectors.sonar.sample import SonarSample, System
from ccpipe.node.collectors.sonar.sysinfo import SonarSysinfo
from tests.conftest import program
from tests.node.conftest import PACKED, Root, unpack
from tests.node.fake_nvml import FakeGpu, install

SLOT = 1_740_027_950 * 10**9


def strict(envelope: Envelope) -> Envelope:
    """Return an envelope as a strict reader sees it."""
    decoded = decode(encode(envelope), strict=True)
    assert decoded.rejected == []
    [again] = decoded
    assert again == envelope
    return again


def made(root: object = "/", **options: Any) -> SonarSysinfo:
    return SonarSysinfo(cluster="fox.test", node="n1", root=str(root), **options)


def described(collector: SonarSysinfo) -> SysinfoAttributes:
    [envelope] = collector.collect(SLOT)
    data = strict(envelope).data
    assert data is not None
    assert isinstance(data.attributes, SysinfoAttributes)
    return data.attributes


def test_sysinfo_describes_node(root: Root) -> None:
    """All fields of the specification; lstopo cannot read a captured tree."""
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


def test_sysinfo_describes_gpus(root: Root, monkeypatch: pytest.MonkeyPatch) -> None:
    root.show("topology/first")
    lost = FakeGpu("00000000:C1:00.0", "GPU-b", is_lost=True)
    install(monkeypatch, root.path, FakeGpu("00000000:01:00.0", "GPU-a", {"GetName": "H100"}), lost)
    data, errors = made(root).collect(SLOT)
    strict(errors)
    assert strict(data).data.attributes.cards[0].model == "H100"  # type: ignore[union-attr]
    assert [error.detail for error in errors.errors] == ["NVIDIA GPU 1: GPU is lost"]


def test_sysinfo_is_envelope_of_errors_without_topology(tmp_path: Path) -> None:
    [envelope] = made(unpack("@ first\n## /proc/x\n\n@ second\n", tmp_path)).collect(SLOT)
    strict(envelope)
    assert envelope.data is None
    assert "proc/sys/kernel/ostype" in envelope.errors[0].detail


def test_sysinfo_describes_this_machine() -> None:
    """By the specification's rules."""
    reported = described(made(lstopo=False))
    assert reported.sockets * reported.cores_per_socket * reported.threads_per_core
    assert reported.topo_svg == ""


def test_sysinfo_includes_drawings_of_real_lstopo() -> None:
    """In base 64; one is a picture, the other a text."""
    program("lstopo-no-graphics", "hwloc-nox")
    reported = described(made())
    picture = ET.fromstring(base64.b64decode(reported.topo_svg))  # noqa: S314 - of a program that we ran
    assert picture.tag.endswith("svg")
    assert base64.b64decode(reported.topo_text).decode().startswith("Machine (")


def test_sysinfo_has_no_drawings_without_lstopo(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    reported = described(made())
    assert (reported.topo_svg, reported.topo_text) == ("", "")


def test_sysinfo_omits_only_drawings_if_lstopo_fails(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Its arguments are passed unchanged; its message is reported as an error."""
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


def test_sysinfo_limits_size_of_drawing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
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


def read(system: System) -> SampleSystem:
    errors = Errors()
    reported = system.read([], errors)
    assert not errors.texts
    return reported


def test_system_reports_state_of_node(root: Root) -> None:
    """Seconds of processors without idle and waiting; memory is total less available."""
    root.show("sonar/first")
    reported = read(System(root=str(root)))
    assert reported.cpus == (16, 26, 0, 1)
    assert reported.used_memory == 16_384_000 - 12_000_000
    assert (reported.load1, reported.load5, reported.load15) == (1.5, 0.75, 0.25)
    assert (reported.runnable_entities, reported.existing_entities) == (2, 345)
    assert datetime.fromisoformat(reported.boot) == datetime.fromtimestamp(1_740_000_000, UTC)


def test_system_reports_disks_in_kernel_units(root: Root) -> None:
    root.show("sonar/first")
    assert read(System(root=str(root))).disks == (
        SampleDisk("sda", 8, 0, (100, 10, 2000, 50, 200, 20, 4000, 80, 0, 90, 130, *range(1, 7))),
        SampleDisk("sda1", 8, 1, (90, 10, 1900, 45, 190, 20, 3900, 75, 0, 80, 120)),
    )


def test_system_keeps_place_of_offline_hwthread(root: Root) -> None:
    root.show("sonar/first")
    system = System(root=str(root))
    read(system)
    root.show("sonar/second")
    assert read(system).cpus == (116, 26, 0, 1)


def test_epoch_is_unchanged_by_small_clock_step(root: Root) -> None:
    """The second reading's boot is a second later; counted from 2020, and never zero."""
    root.show("sonar/first")
    system = System(root=str(root))
    assert system.epoch == 1
    first = read(system)
    assert system.epoch == 1_740_000_000 - 1_577_836_800
    root.show("sonar/second")
    assert read(system).boot == first.boot
    assert system.epoch == 1_740_000_000 - 1_577_836_800


def test_epoch_changes_with_large_clock_step(tmp_path: Path, root: Root) -> None:
    """As when a node starts in 1970 and its clock is set later."""
    root.show("sonar/first")
    text = (root.path / "proc/stat").read_text()
    (tmp_path / "proc").mkdir()
    for name in ("loadavg", "meminfo", "diskstats"):
        (tmp_path / "proc" / name).write_text((root.path / "proc" / name).read_text())
    system = System(root=str(tmp_path))
    for boot, epoch in ((70, 1), (1_740_000_000, 162_163_200), (1_740_000_060, 162_163_200)):
        (tmp_path / "proc/stat").write_text(text.replace("1740000000", str(boot)))
        read(system)
        assert system.epoch == epoch


def test_system_reports_invalid_files_once(tmp_path: Path, root: Root) -> None:
    """Memory without MemAvailable is as in the collector `memory`; other values are unaffected."""
    root.show("sonar/first")
    (tmp_path / "proc").mkdir()
    contents = {
        "stat": (root.path / "proc/stat").read_text(),
        "meminfo": "MemTotal: 100 kB\nMemFree: 40 kB\nBuffers: 5 kB\nCached: 15 kB\n",
        "diskstats": " 8 0 sda 1 2 3\n",
        "loadavg": "much\n",
    }
    for name, text in contents.items():
        (tmp_path / "proc" / name).write_text(text)
    errors = Errors()
    reported = System(root=str(tmp_path)).read([], errors)
    assert (reported.used_memory, reported.load1, reported.disks) == (40, 0, ())
    assert len(reported.cpus) == 4
    load, disks = errors.texts
    assert "proc/loadavg: 'much\\n' are not load averages" in load
    assert "proc/diskstats: line 1: 3 counters, not 11" in disks


@pytest.mark.parametrize(
    ("stat", "reason"),
    [
        ("cpu 1 2 3 4\n", "proc/stat: the line 'btime' is missing"),
        ("btime 5\n", "proc/stat: the line 'cpu' is missing"),
        ("btime 5\ncpu 1 2 x 4\n", "proc/stat: line 2: 'x' is not a counter"),
    ],
)
def test_system_raises_without_processors(tmp_path: Path, stat: str, reason: str) -> None:
    unpack(f"@ first\n## /proc/stat\n{stat}@ second\n", tmp_path)
    with pytest.raises(DataError, match=reason):
        System(root=str(tmp_path)).read([], Errors())


def test_uptime_is_read_or_rejected(root: Root, tmp_path: Path) -> None:
    root.show("sonar/first")
    assert System(root=str(root)).uptime() == 1000
    unpack("@ first\n## /proc/uptime\nlong\n@ second\n", tmp_path)
    with pytest.raises(DataError, match="uptime: 'long.n' is not an uptime"):
        System(root=str(tmp_path)).uptime()


def test_system_agrees_with_psutil() -> None:
    before = psutil.cpu_times(percpu=True)
    reported = read(System())
    after = psutil.cpu_times(percpu=True)
    assert len(reported.cpus) == psutil.cpu_count()
    for minimum, seconds, maximum in zip(before, reported.cpus, after, strict=True):
        busy = [t.user + t.nice + t.system + t.irq + t.softirq for t in (minimum, maximum)]
        assert busy[0] - 1 <= seconds <= busy[1]
    assert abs(datetime.fromisoformat(reported.boot).timestamp() - psutil.boot_time()) <= 1
    memory = psutil.virtual_memory()
    assert reported.used_memory == pytest.approx((memory.total - memory.available) / 1024, rel=0.2)
    assert {disk.name for disk in reported.disks} <= set(psutil.disk_io_counters(perdisk=True))


def test_errors_contain_each_text_once() -> None:
    errors = Errors()
    for text in ("b", "a", "b"):
        errors.note(OSError(5, text))
    reported = errors.reported(10**18, "fox.test", "n1")
    assert [error.detail for error in reported] == ["[Errno 5] b", "[Errno 5] a"]
    assert {(error.cluster, error.node) for error in reported} == {("fox.test", "n1")}
    assert {timestamp.parse(error.time) for error in reported} == {10**18}


def test_errors_are_limited() -> None:
    """The last one is the number of further errors; the length of each is limited."""
    errors = Errors()
    for number in range(50):
        errors.note(f"{number} " + "x" * 1000)
    reported = errors.reported(0, "c", "n")
    assert len(reported) == 21
    assert reported[-1].detail == "30 more errors"
    assert max(len(error.detail) for error in reported) == 500


def fail(error: Exception) -> None:
    raise error


def test_errors_suppress_noted_exceptions() -> None:
    errors = Errors()
    with errors.noted():
        fail(MissingExtra("nvidia-ml-py", "gpu"))
    assert list(errors.texts) == [str(MissingExtra("nvidia-ml-py", "gpu"))]
    with pytest.raises(KeyError), errors.noted():
        fail(KeyError(1))


def test_envelope_of_errors_follows_specification() -> None:
    """For any text: lone surrogates are replaced, and nothing is empty."""
    errors = Errors()
    errors.note("bad name \udcff")
    errors.note("")
    envelope = errors.envelope(1_740_027_953 * 10**9, "fox.test", "n1")
    [decoded] = decode(encode(envelope), strict=True)
    assert [error.detail for error in decoded.errors] == ["bad name ?", "str"]
    assert decoded.data is None


@pytest.mark.parametrize("zone", ["UTC", "Europe/Oslo", "Asia/Kolkata", "America/St_Johns"])
def test_times_are_local_with_their_offset(monkeypatch: pytest.MonkeyPatch, zone: str) -> None:
    try:
        monkeypatch.setenv("TZ", zone)
        time.tzset()
        for seconds in (1_735_689_600, 1_751_328_000):
            text = local(seconds * 10**9 + 5)
            assert timestamp.is_strict(text)
            assert datetime.fromisoformat(text).timestamp() == seconds
            assert text[:19] == time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(seconds))
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("node")
    for tree in ("sonar", "topology", "kfd"):
        unpack((PACKED / f"{tree}.txt").read_text(), directory)
    return directory


FILES = re.findall(
    r"^## (/\S+)$",
    "".join((PACKED / f"{tree}.txt").read_text().partition("@ second")[0]
            for tree in ("sonar", "topology", "kfd")),
    re.MULTILINE,
)  # fmt: skip
WORDS = ["", "-1", "0", "x", "nan", "99999999999", str(2**64), "9" * 20, "\udcff", " ", "\n"]


@given(st.sampled_from(FILES), st.floats(0, 1, exclude_max=True), st.sampled_from(WORDS))
def test_any_change_of_a_file_gives_valid_envelopes(
    node: Path, name: str, place: float, word: str
) -> None:
    """One word of one file is another: both collectors still keep the specification's rules."""
    path = node / name.strip("/")
    whole = path.read_bytes()
    spans = [found.span() for found in re.finditer(rb"\w+|\n", whole)] or [(0, 0)]
    start, end = spans[int(place * len(spans))]
    path.write_bytes(whole[:start] + os.fsencode(word) + whole[end:])
    try:
        for collector in (
            SonarSample(cluster="c", node="n", root=str(node), exclude_system_jobs=False),
            SonarSysinfo(cluster="c", node="n", root=str(node)),
        ):
            envelopes = list(collector.collect(1_740_027_950 * 10**9))
            assert envelopes
            for envelope in envelopes:
                decoded = decode(encode(envelope), strict=True)
                assert (decoded, decoded.rejected) == ([envelope], [])
    finally:
        path.write_bytes(whole)
