"""Fixtures of tests of collectors: trees of ``/proc`` and ``/sys`` with two readings each."""

import itertools
import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ccpipe.formats.lineprotocol import encode
from ccpipe.message import Message, Value
from ccpipe.node.sampling.collector import Collector
from tests.node.fake_sampling import Clocks, set_clocks
from tests.paths import TEST_DATA

TREES = TEST_DATA / "proc"
PACKED = TEST_DATA / "sys"

Reported = dict[tuple[str, str], Value]
"""Values by name and by what the tags ``type-id`` and ``stype-id`` say, as ``0/Core 1``."""


class Root:
    """A root of the file system whose ``/proc`` shows one captured reading, then the next."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __str__(self) -> str:
        return str(self.path)

    def show(self, reading: str) -> None:
        """Let the root be a reading such as ``captured/first`` or, packed, ``rapl/first``."""
        self.path.unlink(missing_ok=True)
        tree, _, number = reading.partition("/")
        packed = PACKED / f"{tree}.txt"
        if (TREES / tree).is_dir() or not packed.exists():
            self.path.symlink_to(TREES / reading)
            return
        directory = self.path.parent / f"{tree}-{number}"
        if not directory.exists():
            unpack(packed.read_text(), directory, number)
        self.path.symlink_to(directory)

    def twice(self, collector: Collector, tree: str) -> tuple[Reported, Reported]:
        """Read a tree's first and second reading, and check every message by the rules."""
        self.show(f"{tree}/first")
        first = reported(collector.collect(1_000_000_000))
        self.show(f"{tree}/second")
        return first, reported(collector.collect(2_000_000_000))


def unpack(text: str, directory: Path, reading: str = "first") -> Path:
    first, second = text.removeprefix("@ first\n").split("@ second\n")
    for part in (first, second) if reading == "second" else (first,):
        for block in re.split(r"^(?=## /|- /)", part, flags=re.MULTILINE):
            head, _, content = block.partition("\n")
            name, _, target = head[3:].partition(" -> ")
            path = directory / name.strip("/")
            if head.startswith("- /"):
                shutil.rmtree(directory / head[3:])
            elif target:
                path.parent.mkdir(parents=True, exist_ok=True)
                if not path.is_symlink():
                    path.symlink_to(target)
            elif head:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(content)
                if name.endswith(_BINARY):
                    path.rename(path.with_name(path.name.removesuffix(_BINARY))).write_bytes(
                        _from_hex(content)
                    )
    return directory


_BINARY = " in hex"


def _from_hex(text: str) -> bytes:
    """Return the bytes; of what is no hex, as a test may draw it, the text's own."""
    try:
        return bytes.fromhex(text)
    except ValueError:
        return text.encode(errors="surrogateescape")


def reported(messages: Iterable[Message]) -> Reported:
    """Return what messages say; each of them must be clean, writable and told once."""
    values: Reported = {}
    for message in messages:
        checked(message)
        tags = message.tags
        key = message.name, "/".join(tags[key] for key in ("type-id", "stype-id") if key in tags)
        assert key not in values
        values[key] = message.value
    return values


def checked(message: Message) -> Message:
    """Return a collector's message as the sampler completes it; it must break no rule."""
    tags = {"cluster": "c", "hostname": "h", **message.tags}
    assert set(message.tags) <= {"type", "type-id", "stype", "stype-id"}
    complete = Message(message.name, tags, message.value, message.time)
    problems = complete.problems()
    if message.name.startswith("topproc"):  # strings, which the specification does not have
        assert isinstance(message.value, str)
        problems.remove(f"a metric's value must be a number, not {message.value!r:.40}")
    assert problems == []
    assert encode([complete])
    return complete


@pytest.fixture
def clocks(monkeypatch: pytest.MonkeyPatch) -> Clocks:
    """Return clocks that the sampler reads in place of the machine's."""
    return set_clocks(monkeypatch)


@pytest.fixture
def root(tmp_path: Path) -> Root:
    return Root(tmp_path / "root")


_WITH_RATES = ("sampling.collector", "collectors.gpu.nvidia")  # modules


@pytest.fixture
def seconds(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that sets the time between two readings, which trees do not hold."""

    def between(elapsed: float) -> None:
        for module in _WITH_RATES:
            times = itertools.count(1000.0, elapsed)
            monkeypatch.setattr(f"ccpipe.node.{module}.monotonic", times.__next__)

    return between


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Mount a file system of 64 KiB; needs root."""
    if os.geteuid() != 0:
        pytest.skip("mounting a tmpfs needs root")
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "spool", disk], check=True)
    yield disk
    subprocess.run(["umount", "--lazy", disk], check=True)
