"""Reading ``/proc``: whatever stands in it, collectors give messages or DataError."""

import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.errors import DataError
from ccpipe.formats.lineprotocol import encode
from ccpipe.message import Message, metric
from ccpipe.sources import proc
from ccpipe.sources.cpu import Cpu
from ccpipe.sources.disk import Disk
from ccpipe.sources.load import Load
from ccpipe.sources.memory import Memory
from ccpipe.sources.network import Network
from ccpipe.sources.sampler import Collector
from tests.sources.conftest import TREES, told

READERS: dict[str, Callable[[str], Collector]] = {
    "stat": lambda root: Cpu(hwthreads=True, root=root),
    "diskstats": lambda root: Disk(exclude=[], root=root),
    "self/mountinfo": lambda root: Disk(exclude=[], root=root),
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
    """Draw what could stand in a file: a captured one with words exchanged, or any bytes."""
    if draw(st.integers(0, 3)) == 0:
        return draw(st.one_of(st.binary(max_size=200), st.text(max_size=200).map(str.encode)))
    lines = (TREES / "captured/first/proc" / file).read_text().split("\n")
    for _ in range(draw(st.integers(0, 4))):
        line = draw(st.integers(0, len(lines) - 1))
        tokens = lines[line].split(" ")
        place = draw(st.integers(0, len(tokens) - 1))
        tokens[place : place + draw(st.integers(0, 2))] = draw(st.lists(words, max_size=2))
        lines[line] = " ".join(tokens)
    return "\n".join(lines).encode()


@pytest.mark.parametrize("file", READERS)
@given(data=st.data())
def test_any_text_gives_clean_messages_or_a_named_error(file: str, data: st.DataObject) -> None:
    """No text raises anything else, nor makes a message that breaks a rule or cannot be sent."""
    with tempfile.TemporaryDirectory() as root:
        path = Path(root, "proc", file)
        for other in ("proc/self/mountinfo", "proc/diskstats"):
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
                    told([message])


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
