"""``TreeSink``: envelopes in their files, whole, whatever happens."""

import logging
from pathlib import Path

import pytest

from ccpipe.errors import CreateError, RejectedError, UnavailableError
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
    """One file for each node, one envelope to a line, in order."""
    async with TreeSink(dir=str(tmp_path / "new" / "data"), profile="spec") as sink:
        await sink.write([sample("n1"), sample("n2"), sample("n1", 1)])
        await sink.write([sample("n1", 2)])
    assert content(tmp_path / "new" / "data") == {
        f"{DAY}/0+sample-n1.json": [sample("n1", second) for second in range(3)],
        f"{DAY}/0+sample-n2.json": [sample("n2")],
    }
    assert (tmp_path / f"new/data/{DAY}/0+sample-n1.json").read_bytes().count(b"\n") == 3


async def test_tree_without_cluster_directories(tmp_path: Path) -> None:
    """The root contains the years."""
    async with TreeSink(dir=str(tmp_path), cluster_directories=False) as sink:
        await sink.write([sample()])
    assert list(content(tmp_path)) == ["2025/04/07/0+sample-n1.json"]


async def test_envelope_without_file_is_rejected(tmp_path: Path) -> None:
    """The others of the batch are not written either, so that a retry duplicates none."""
    good = decode("".join(ALL[:4]).encode())
    (error,) = decode(ERROR.encode())
    async with TreeSink(dir=str(tmp_path)) as sink:
        with pytest.raises(RejectedError, match="of errors") as caught:
            await sink.write([*good, error, error])
        assert caught.value.indices == [4, 5]
        assert content(tmp_path) == {}


async def test_repeated_write_duplicates_nothing(tmp_path: Path) -> None:
    """After one file failed, others are not appended to again, not even in halves."""
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
        await sink.write(batch[2:])  # another batch, unknown to the sink
    assert content(tmp_path) == {
        f"{DAY}/0+sample-n1.json": batch[:2],
        f"{DAY}/0+sample-n2.json": [batch[2]] * 2,
    }


async def test_full_disk_leaves_no_part_of_envelope(tmp_path: Path) -> None:
    many = [sample("n1", second) for second in range(60)]
    async with TreeSink(dir=str(tmp_path), profile="spec") as sink:
        await sink.write(many[:1])
        with full_disk(1000), pytest.raises(UnavailableError, match="too large"):
            await sink.write(many[1:])
        assert content(tmp_path) == {f"{DAY}/0+sample-n1.json": many[:1]}
        await sink.write(many[1:])
    assert content(tmp_path) == {f"{DAY}/0+sample-n1.json": many}


@pytest.mark.parametrize("cut", [1, 20, -2])
async def test_torn_envelope_is_removed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, cut: int
) -> None:
    """It would make Jobanalyzer reject the file; it was not acknowledged."""
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
async def test_complete_envelopes_without_line_end_are_kept(tmp_path: Path, space: str) -> None:
    """Of other programs, on one line or on several."""
    path = tmp_path / DAY / "0+sample-n1.json"
    async with TreeSink(dir=str(tmp_path), profile="spec") as sink:
        await sink.write([sample()])
        path.write_bytes(path.read_bytes().rstrip().replace(b"}}}", b"}}" + space.encode() + b"}"))
        await sink.write([sample(second=1)])
    assert content(tmp_path) == {f"{DAY}/0+sample-n1.json": [sample(), sample(second=1)]}


async def test_check_tests_tree_without_creating_it(tmp_path: Path) -> None:
    await TreeSink(dir=str(tmp_path / "new")).check()
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").touch()
    with pytest.raises(CreateError, match="file is not a directory"):
        await TreeSink(dir=str(tmp_path / "file" / "data")).check()
    with pytest.raises(CreateError, match="not a directory"):
        async with TreeSink(dir=str(tmp_path / "file" / "data")):
            pass
