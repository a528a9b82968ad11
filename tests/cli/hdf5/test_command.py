"""``ccpipe hdf5``, compared with output of the real sh5util."""

import asyncio
import json
import shutil
from pathlib import Path

import nats
import pyarrow.parquet as pq
import pytest

from ccpipe.bus.nats.server import NatsServer
from ccpipe.formats.lineprotocol import decode
from ccpipe.formats.slurm_profile.reader import open_profile
from tests.cli.command import ccpipe
from tests.conftest import free_port
from tests.formats.slurm_profile.samples import DATA

JOB = DATA / "merged" / "job_17.h5"


def test_extracted_csv_equals_sh5util() -> None:
    """Series and level may be in lower case."""
    done = ccpipe("hdf5", "extract", "-i", JOB, "-s", "tasks", "-l", "node:totals")
    assert done.code == 0
    assert done.out == (DATA / "csv" / "job_17.E.Tasks.totals.csv").read_text()


def test_output_file_appears_when_complete(tmp_path: Path) -> None:
    path = tmp_path / "energy.csv"
    done = ccpipe("hdf5", "extract", "-i", JOB, "-s", "Energy", "--out", path)
    assert (done.code, done.out) == (0, "")
    assert path.read_bytes() == (DATA / "csv/job_17.E.Energy.timeseries.csv").read_bytes()
    assert ccpipe("hdf5", "extract", "-i", JOB, "-s", "Energy", "-l", "x", "--out", path).code == 64
    assert list(tmp_path.iterdir()) == [path]


def test_formats_have_equal_rows(tmp_path: Path) -> None:
    arguments = ("hdf5", "extract", "-i", JOB, "-s", "Tasks", "-o")
    lines = ccpipe(*arguments, "csv").out.splitlines()
    objects = [json.loads(line) for line in ccpipe(*arguments, "json").out.splitlines()]
    path = tmp_path / "tasks.parquet"
    assert ccpipe(*arguments, "parquet", "--out", path).code == 0
    rows = pq.read_table(path).to_pylist()
    messages = decode(ccpipe(*arguments, "line", "--cluster", "fox").out.encode())
    assert len(lines) - 1 == len(objects) == len(rows) > 10
    assert [row["RSS"] for row in rows] == [one["RSS"] for one in objects]
    sizes = [message.value for message in messages if message.name == "task_mem_rss"]
    assert sizes == [one["RSS"] * 1024 for one in objects]
    assert not messages.rejected
    assert not [problem for message in messages for problem in message.problems()]


def test_node_takes_lists_and_patterns() -> None:
    """A bad list is a usage error that names the flag."""
    given = ("hdf5", "extract", "-i", JOB, "-s", "Energy")
    whole = ccpipe(*given).out
    names = sorted({line.split(",")[1] for line in whole.splitlines()[1:]})
    for node in (",".join(names), "*", f"{names[0][:-1]}?"):
        assert ccpipe(*given, "--node", node).out == whole
    bad = ccpipe(*given, "-N", "n[1-")
    assert (bad.code, "--node n[1-: " in bad.err) == (64, True)


def test_filters_may_be_repeated() -> None:
    def steps(*arguments: object) -> set[tuple[str, str]]:
        lines = ccpipe("hdf5", "extract", "-s", "Tasks", *arguments).out.splitlines()[1:]
        return {(line.split(",")[0], line.split(",")[1]) for line in lines}

    found = steps("-i", JOB)
    assert len(found) >= 1
    step, node = min(found)
    assert steps("-i", JOB, "-j", f"17.{step}", "-N", node, "-N", "nosuch") == {(step, node)}
    done = ccpipe("hdf5", "extract", "-i", JOB, "-s", "Tasks", "-N", "nosuch")
    assert done.code == 65
    assert "no table matches; the files have Energy" in done.err


def test_items_equal_sh5util_with_option() -> None:
    arguments = ("hdf5", "items", "-i", JOB, "-s", "Energy", "-d", "power")
    theirs, ours = ccpipe(*arguments, "--sh5util"), ccpipe(*arguments)
    assert theirs.out.startswith("Step,ElaspedTime,MinNode")
    assert ours.out.startswith("Step,ElapsedTime,EpochTime,MinNode")
    assert "Maximum accumulated" in ours.err
    objects = ccpipe(*arguments, "-o", "json").out.splitlines()
    assert len(objects) == len(ours.out.splitlines()) - 1
    assert json.loads(objects[0])["count"] >= 1
    assert ccpipe(*arguments[:-1], "nosuch").code == 65


def test_merge_keeps_input_and_may_be_repeated(tmp_path: Path) -> None:
    directory = tmp_path / "alice"
    directory.mkdir()
    names = list((DATA / "node-step").rglob("3_*.h5"))
    assert names
    for path in names:
        shutil.copy(path, directory)
    output = tmp_path / "job_3.h5"
    arguments = ("hdf5", "merge", "-j", 3, "-p", tmp_path, "-u", "alice", "--out", output)
    first = ccpipe(*arguments, "-S")
    assert first.code == 0, first.err
    before = output.read_bytes()
    assert ", 0 new" in ccpipe(*arguments).err
    assert output.read_bytes() == before
    assert len(list(directory.iterdir())) == len(names)
    with open_profile(output) as profile:
        assert len(profile.node_steps) == len(names)
    assert ccpipe(*arguments, "--delete").code == 0
    assert not list(directory.iterdir())
    done = ccpipe(*arguments)
    assert done.code == 65
    assert "no node-step files" in done.err


def test_unreadable_file_is_skipped(tmp_path: Path) -> None:
    good = next((DATA / "node-step").rglob("3_0_c1.h5"))
    shutil.copy(good, tmp_path / "3_0_c1.h5")
    (tmp_path / "3_0_c2.h5").write_bytes(b"no HDF5")
    output = tmp_path / "job.h5"
    files = ("-i", tmp_path / "3_0_c1.h5", "-i", tmp_path / "3_0_c2.h5")
    done = ccpipe("hdf5", "merge", *files, "--out", output)
    assert done.code == 65
    assert "3_0_c2.h5" in done.err
    with open_profile(output) as profile:
        assert [step.node for step in profile.node_steps] == ["c1"]


def test_list_shows_fields_and_suspect_values() -> None:
    [energy, *others] = json.loads(ccpipe("hdf5", "list", "-i", JOB, "-o", "json").out)
    assert energy["series"] == "Energy"
    assert energy["fields"] == ["ElapsedTime", "EpochTime", "Power"]
    suspects = {name for row in others for name in row["suspect"]}
    assert "filesystem_node_counters" in suspects
    arguments = ("hdf5", "extract", "-i", JOB, "-s", "Filesystem")
    fixed = ccpipe(*arguments, "--fix", "filesystem_node_counters")
    assert fixed.code == 0
    assert fixed.out != ccpipe(*arguments).out
    assert ccpipe(*arguments, "--fix", "nosuch").code == 64
    assert "SERIES" in ccpipe("hdf5", "list", "-i", JOB).out


def test_show_draws_each_field(tmp_path: Path) -> None:
    done = ccpipe("hdf5", "show", "-i", JOB, "-s", "Tasks", "-d", "RSS", "--width", 40)
    assert done.code == 0
    lines = done.out.splitlines()
    assert lines
    assert all("RSS" in line and line.endswith(" KiB") for line in lines)
    assert any("█" in line for line in lines)
    assert ccpipe("hdf5", "show", "-i", JOB, "-d", "nosuch").code == 65


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("extract", "-i", JOB), 64),
        (("extract",), 64),
        (("extract", "-j", "x"), 64),
        (("extract", "-i", "/nonexistent.h5", "-s", "Energy"), 66),
        (("extract", "-i", __file__, "-s", "Energy"), 65),
        (("merge",), 64),
        (("merge", "-j", "13_1", "-p", "."), 65),
        (("merge", "-j", "1", "-S", "--delete"), 64),
        (("merge", "-j", "1", "-p", "/nonexistent"), 66),
        (("items", "-i", JOB, "-d", "Power", "--interval", "0"), 64),
    ],
)
def test_errors_have_exit_codes(arguments: tuple[object, ...], code: int) -> None:
    done = ccpipe("hdf5", *arguments)
    assert done.code == code, done.err
    assert "Traceback" not in done.err
    assert done.err.startswith("ccpipe: ")


async def test_published_samples_equal_extracted_ones(nats_server: NatsServer) -> None:
    arguments = ("-i", JOB, "--cluster", "fox", "-s", "Tasks")
    extracted = decode(ccpipe("hdf5", "extract", *arguments, "-o", "line").out.encode())
    for _ in range(2):
        done = await asyncio.to_thread(
            ccpipe, "hdf5", "publish", *arguments, "--server", nats_server.url
        )
        assert done.code == 0, done.err
        assert "samples published" in done.err
    client = await nats.connect(nats_server.url)
    stream = client.jetstream()
    count = (await stream.stream_info("ccpipe-fox")).state.messages
    payloads = [(await stream.get_msg("ccpipe-fox", seq=n + 1)).data or b"" for n in range(count)]
    await client.close()
    published = decode(b"".join(payloads))
    assert sorted(map(str, published)) == sorted(map(str, extracted))
    assert len(published) > 10


def test_publish_fails_without_broker() -> None:
    done = ccpipe("hdf5", "publish", "-i", JOB, "--server", f"nats://127.0.0.1:{free_port()}")
    assert done.code == 69
    assert "Traceback" not in done.err
