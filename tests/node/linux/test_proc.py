"""Reading ``/proc`` and ``/sys``: whatever stands in it, collectors give messages or DataError."""

import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ccpipe.errors import DataError
from ccpipe.formats.lineprotocol import encode
from ccpipe.message import Message, metric
from ccpipe.node.collectors.clock import Clock
from ccpipe.node.collectors.cpu import Cpu
from ccpipe.node.collectors.gpu.amd_gpu import AmdGpu
from ccpipe.node.collectors.infiniband import InfiniBand
from ccpipe.node.collectors.load import Load
from ccpipe.node.collectors.memory import Memory
from ccpipe.node.collectors.network import Network
from ccpipe.node.collectors.pressure import Pressure
from ccpipe.node.collectors.processes import Processes
from ccpipe.node.collectors.rapl import Rapl
from ccpipe.node.collectors.slurm_cgroup import SlurmCgroup
from ccpipe.node.collectors.storage.disk import Disk
from ccpipe.node.collectors.storage.lustre import Lustre
from ccpipe.node.collectors.storage.nfs import Nfs
from ccpipe.node.collectors.temperature import Temperature
from ccpipe.node.linux import proc
from ccpipe.node.sampling.thread import Collector
from tests.node.conftest import PACKED, TREES, reported, unpack

READERS: dict[str, Callable[[str], Collector]] = {
    "stat": lambda root: Cpu(hwthreads=["*"], root=root),
    "diskstats": lambda root: Disk(exclude=[], root=root),
    "self/mounts": lambda root: Disk(exclude=[], root=root),
    "loadavg": lambda root: Load(root=root),
    "meminfo": lambda root: Memory(root=root),
    "net/dev": lambda root: Network(exclude=[], root=root),
}

words = st.one_of(
    st.integers(-2, 2**64 + 1).map(str),
    st.sampled_from(["0", "18446744073709551615", "9223372036854775808", "1_000", "٣", "kB", "-"]),
    st.sampled_from(["/dev/sda", "/a\\040b", "/\\000", "eth0:", ":", "cpu", "cpu1", "a\\134"]),
    st.text(max_size=8),
)


@st.composite
def readings(draw: st.DrawFn, file: str) -> bytes:
    if draw(st.integers(0, 3)) == 0:
        return draw(st.one_of(st.binary(max_size=200), st.text(max_size=200).map(str.encode)))
    return draw(variants((TREES / "captured/first/proc" / file).read_text()))


@st.composite
def variants(draw: st.DrawFn, text: str) -> bytes:
    lines = text.split("\n")
    for _ in range(draw(st.integers(0, 4))):
        line = draw(st.integers(0, len(lines) - 1))
        tokens = lines[line].split(" ")
        place = draw(st.integers(0, len(tokens) - 1))
        tokens[place : place + draw(st.integers(0, 2))] = draw(st.lists(words, max_size=2))
        lines[line] = " ".join(tokens)
    return "\n".join(lines).encode()


@pytest.mark.parametrize("file", READERS)
@settings(max_examples=60)
@given(data=st.data())
def test_any_text_gives_clean_messages_or_a_named_error(file: str, data: st.DataObject) -> None:
    """No text raises anything else, nor makes a message that breaks a rule or cannot be sent."""
    with tempfile.TemporaryDirectory() as root:
        path = Path(root, "proc", file)
        for other in ("proc/self/mounts", "proc/diskstats"):
            Path(root, other).parent.mkdir(parents=True, exist_ok=True)
            Path(root, other).write_text("")
        path.parent.mkdir(exist_ok=True)
        collector = READERS[file](root)
        for _ in range(2):
            path.write_bytes(data.draw(readings(file)))
            try:
                messages = list(collector.collect(1))
            except DataError as error:
                assert str(error).startswith(str(path))  # noqa: PT017 - it may well not be raised
            else:
                for message in messages:
                    reported([message])


PACKED_READERS: dict[str, Callable[[str], Collector]] = {
    "amd": lambda root: AmdGpu(root=root),
    "captured-sys": lambda root: Memory(domains=True, root=root),
    "cgroup-v1": lambda root: SlurmCgroup(root=root),
    "cgroup-v2": lambda root: SlurmCgroup(root=root),
    "clock": lambda root: Clock(hwthreads=True, root=root),
    "hwmon": lambda root: Temperature(exclude=[], root=root),
    "infiniband": lambda root: InfiniBand(root=root),
    "lustre": lambda root: Lustre(root=root),
    "nfs": lambda root: Nfs(root=root),
    "pressure": lambda root: Pressure(root=root),
    "processes": lambda root: Processes(root=root),
    "rapl": lambda root: Rapl(root=root),
}


@pytest.mark.parametrize("tree", PACKED_READERS)
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_text_anywhere_in_a_tree_gives_clean_messages_or_an_error(
    tree: str, data: st.DataObject, tmp_path: Path
) -> None:
    """The same for every file that a collector of many reads, one at a time."""
    if not (tmp_path / "root").exists():
        unpack((PACKED / f"{tree}.txt").read_text(), tmp_path / "root")
    root = str(tmp_path / "root")
    binary = "gpu_metrics"  # its own test draws bytes
    found = (tmp_path / "root").rglob("*")
    files = sorted(path for path in found if path.is_file() and path.name != binary)
    path = data.draw(st.sampled_from(files))
    text = path.read_text()
    collector = PACKED_READERS[tree](root)
    try:
        for _ in range(2):
            path.write_bytes(data.draw(variants(text)))
            try:
                messages = list(collector.collect(1))
            except DataError:
                continue
            reported(messages)
    finally:
        path.write_text(text)


@pytest.mark.parametrize("tree", PACKED_READERS)
def test_an_empty_machine_has_none_of_these(tmp_path: Path, tree: str) -> None:
    """What this machine has not is OSError, which tells the sampler not to ask again."""
    with pytest.raises(FileNotFoundError):
        list(PACKED_READERS[tree](str(tmp_path)).collect(0))


@pytest.mark.parametrize("file", READERS)
def test_a_missing_file_is_an_os_error(tmp_path: Path, file: str) -> None:
    """What this machine has not is OSError, which tells the sampler not to ask again."""
    with pytest.raises(FileNotFoundError):
        list(READERS[file](str(tmp_path)).collect(0))


@pytest.mark.parametrize(
    ("before", "now", "gains"),
    [
        (None, [1], None),
        ([1, 2], [1, 5], [0, 3]),
        ([5, 5], [4, 9], None),
        ([1], [1, 2], None),
        ([0], [2**64 - 1], None),
        ([2**64 - 10], [2**64 - 1], [9]),
    ],
)
def test_gains_are_never_negative(
    before: list[int] | None, now: list[int], gains: list[int] | None
) -> None:
    """A first reading, a counter that went down and one that jumped tell nothing."""
    assert proc.gained(before, now) == gains


@given(st.binary(min_size=1, max_size=20))
def test_every_name_becomes_a_tag_that_can_be_written(name: bytes) -> None:
    """A device, interface or mount point may hold any bytes; printable ones stay as they are."""
    text = name.decode(errors="surrogateescape")
    tag = proc.tag(text)
    assert tag == text or "%" in tag
    assert encode([_named(tag)])


def _named(tag: str) -> Message:
    return metric("m", 1, time=1, tags={"stype-id": tag})


def test_names_are_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    """cpu2 comes before cpu10; what fits no pattern is left out, and none at all is absent."""
    for name in ("cpu10", "cpu2", "cpufreq", "cpu0"):
        (tmp_path / name).touch()
    assert proc.names(tmp_path, "cpu[0-9]*") == ["cpu0", "cpu2", "cpu10"]
    with pytest.raises(FileNotFoundError, match="nothing here is named node"):
        proc.names(tmp_path, "node*")


@pytest.mark.parametrize(
    ("text", "number", "counter"),
    [("-5\n", -5, None), ("7", 7, 7), ("18446744073709551615", None, 2**64 - 1), ("", None, None)],
)
def test_a_file_of_one_number(
    tmp_path: Path, text: str, number: int | None, counter: int | None
) -> None:
    """A counter has 64 bits and no sign; what is none of it raises DataError."""
    path = tmp_path / "file"
    path.write_text(text)
    for read, expected in ((proc.number, number), (proc.counter, counter)):
        if expected is None:
            with pytest.raises(DataError, match=str(path)):
                read(path)
        else:
            assert read(path) == expected


def test_a_file_that_cannot_be_read_now_is_none(tmp_path: Path) -> None:
    """A folder fails to be read, as a sensor that sleeps does; so does what is not there."""
    for path in (tmp_path, tmp_path / "absent"):
        assert proc.word(path) is None
        assert proc.number(path) is None
        assert proc.counter(path) is None
        with pytest.raises(OSError, match=str(path)):
            proc.text(path)


def test_a_long_file_is_read_whole(tmp_path: Path) -> None:
    """The kernel hands files over in pieces."""
    path = tmp_path / "file"
    path.write_bytes(b"0123456789" * 50_000 + b"\xff")
    text = proc.text(path)
    assert len(text) == 500_001
    assert text.encode(errors="surrogateescape") == path.read_bytes()


@pytest.mark.parametrize(
    ("text", "numbers"),
    [("0-2,8\n", [0, 1, 2, 8]), ("5", [5]), ("\n", []), ("7-7,3", [7, 3])],
)
def test_a_list_of_numbers_is_written_out(text: str, numbers: list[int]) -> None:
    """As the kernel writes it: numbers and ranges, or nothing."""
    assert proc.listed("cpulist", text) == numbers


@pytest.mark.parametrize("text", ["x", "1-", "5-3", "1 2", "-1", "0-999999999", "٣"])
def test_what_is_no_list_of_numbers_is_refused(text: str) -> None:
    with pytest.raises(DataError, match="cpulist: .* is not a list of hardware threads"):
        proc.listed("cpulist", text)
