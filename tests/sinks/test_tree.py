"""``TreeSink``: envelopes in their files, whole, whatever happens."""

import logging
from pathlib import Path

import pytest

from ccpipe.errors import ConfigError, RejectedError, UnavailableError
from ccpipe.formats.sonar import (
    Envelope,
    Envelopes,
    SampleAttributes,
    SampleData,
    SampleEnvelope,
    decode,
)
from ccpipe.sinks.tree import TreeSink
from tests.formats.sonar.examples import ALL, ERROR
from tests.sinks.conftest import full_disk

DAY = "fox/2025/04/07"


def sample(node: str = "n1", second: int = 0) -> Envelope:
    time = f"2025-04-07T12:00:{second:02}Z"
    attributes = SampleAttributes(time=time, cluster="fox", node=node)
    return SampleEnvelope(data=SampleData(attributes=attributes))


def content(root: Path) -> dict[str, Envelopes]:
    """Read all files back; all of them must be readable."""
    found = {}
    for path in root.glob("**/*.json"):
        decoded = decode(path.read_bytes())
        assert decoded.rejected == []
        found[str(path.relative_to(root))] = decoded
    return found


async def test_envelopes_are_appended_to_their_files(tmp_path: Path) -> None:
    """Each to that of its node, one to a line, in order."""
    async with TreeSink(dir=str(tmp_path / "new" / "data"), profile="spec") as sink:
        await sink.write([sample("n1"), sample("n2"), sample("n1", 1)])
        await sink.write([sample("n1", 2)])
    assert content(tmp_path / "new" / "data") == {
        f"{DAY}/0+sample-n1.json": [sample("n1", second) for second in range(3)],
        f"{DAY}/0+sample-n2.json": [sample("n2")],
    }
    assert (tmp_path / f"new/data/{DAY}/0+sample-n1.json").read_bytes().count(b"\n") == 3


async def test_without_directories_of_clusters(tmp_path: Path) -> None:
    """The root holds the years."""
    async with TreeSink(dir=str(tmp_path), cluster_directories=False) as sink:
        await sink.write([sample()])
    assert list(content(tmp_path)) == ["2025/04/07/0+sample-n1.json"]


async def test_what_has_no_file_is_named(tmp_path: Path) -> None:
    """The others of the batch are not written either, so that a repeated write doubles none."""
    good = decode("".join(ALL[:4]).encode())
    (error,) = decode(ERROR.encode())
    async with TreeSink(dir=str(tmp_path)) as sink:
        with pytest.raises(RejectedError, match="of errors") as caught:
            await sink.write([*good, error, error])
        assert caught.value.indices == [4, 5]
        assert content(tmp_path) == {}


async def test_a_repeated_write_doubles_nothing(tmp_path: Path) -> None:
    """What one file has is not appended again after another one failed, not even in halves."""
    in_the_way = tmp_path / DAY / "0+sample-n2.json"
    in_the_way.mkdir(parents=True)
    batch = [sample("n1"), sample("n1", 1), sample("n2")]
    async with TreeSink(dir=str(tmp_path), profile="spec") as sink:
        for _ in range(2):
            with pytest.raises(UnavailableError, match=r"0\+sample-n2\.json: Is a directory"):
                await sink.write(batch)
        await sink.write(batch[:1])
        in_the_way.rmdir()
        await sink.write(batch[1:])
        await sink.write(batch[2:])  # a batch of its own: it was not asked to know it
    assert content(tmp_path) == {
        f"{DAY}/0+sample-n1.json": batch[:2],
        f"{DAY}/0+sample-n2.json": [batch[2]] * 2,
    }


async def test_a_full_disk_leaves_no_half(tmp_path: Path) -> None:
    """Nothing of an append that did not fit stays in the file."""
    many = [sample("n1", second) for second in range(60)]
    async with TreeSink(dir=str(tmp_path), profile="spec") as sink:
        await sink.write(many[:1])
        with full_disk(1000), pytest.raises(UnavailableError, match="too large"):
            await sink.write(many[1:])
        assert content(tmp_path) == {f"{DAY}/0+sample-n1.json": many[:1]}
        await sink.write(many[1:])
    assert content(tmp_path) == {f"{DAY}/0+sample-n1.json": many}


@pytest.mark.parametrize("cut", [1, 20, -2])
async def test_a_torn_envelope_is_removed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, cut: int
) -> None:
    """One bad object would cost Jobanalyzer the file; it was not acknowledged."""
    path = tmp_path / DAY / "0+sample-n1.json"
    async with TreeSink(dir=str(tmp_path), profile="spec") as sink:
        await sink.write([sample()])
        whole = path.read_bytes()
        path.write_bytes(whole + whole[:cut])
        with caplog.at_level(logging.WARNING):
            await sink.write([sample(second=1)])
    assert content(tmp_path) == {f"{DAY}/0+sample-n1.json": [sample(), sample(second=1)]}
    assert f"{path}: removed" in caplog.text


@pytest.mark.parametrize("space", ["", "\n"])
async def test_whole_envelopes_without_a_line_end_stay(tmp_path: Path, space: str) -> None:
    """Of other programs, on one line or on several."""
    path = tmp_path / DAY / "0+sample-n1.json"
    async with TreeSink(dir=str(tmp_path), profile="spec") as sink:
        await sink.write([sample()])
        path.write_bytes(path.read_bytes().rstrip().replace(b"}}}", b"}}" + space.encode() + b"}"))
        await sink.write([sample(second=1)])
    assert content(tmp_path) == {f"{DAY}/0+sample-n1.json": [sample(), sample(second=1)]}


async def test_check(tmp_path: Path) -> None:
    """``check()`` says whether the tree can be written, and creates nothing."""
    await TreeSink(dir=str(tmp_path / "new")).check()
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="file is not a directory"):
        await TreeSink(dir=str(tmp_path / "file" / "data")).check()
    with pytest.raises(UnavailableError, match="file"):
        async with TreeSink(dir=str(tmp_path / "file" / "data")):
            pass
