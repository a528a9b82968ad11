"""Node-step files while they are written."""

import signal
import stat
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import h5py
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.errors import EncodeError
from ccpipe.formats.slurm_profile.reader import open_profile
from ccpipe.formats.slurm_profile.table import NodeStep
from ccpipe.formats.slurm_profile.writer import (
    NodeStepWriter,
    create_file,
    keep_aside,
    make_path,
    write_attributes,
)
from tests.formats.slurm_profile.samples import (
    DATA,
    START,
    dump,
    read_contents,
    rows,
    write_node_step,
)

STEP = NodeStep(step="0", node="c1", node_index=0, tasks=1, cpus_per_task=1)


def describe(path: Path, node: str) -> dict[str, str]:
    found: dict[str, str] = {}
    with h5py.File(path) as file:
        for name in file[node].attrs:
            attribute = file[node].attrs.get_id(name)
            kind = attribute.get_type()
            text = isinstance(kind, h5py.h5t.TypeStringID)
            padding = kind.get_strpad() if text else None
            found[name] = f"{kind.get_class()} {padding} {attribute.shape}"
        for name in ("Energy", "Tasks/0"):
            table = file[node][name]
            layout = table.id.get_create_plist()
            filters = [layout.get_filter(n)[:3] for n in range(layout.get_nfilters())]
            found[name] = f"{table.dtype} {table.chunks} {table.maxshape} {filters}"
    return found


def test_writer_creates_files_like_slurm(tmp_path: Path) -> None:
    """Types, shapes, chunks and filters of a real file, and a superblock known to sh5util."""
    path = tmp_path / "17_0_c1.h5"
    fields = [
        (name, float if kind == "f" else int)
        for name, kind in (
            *[("CPUFrequency", "i"), ("CPUTime", "f"), ("CPUUtilization", "f"), ("RSS", "i")],
            *[("VMSize", "i"), ("Pages", "i"), ("ReadMB", "f"), ("WriteMB", "f")],
        )
    ]
    with NodeStepWriter(path, STEP, start=START) as writer:
        writer.create_table("Tasks", 0, fields)
        writer.append("Tasks", {}, START, 0)
        writer.append("Energy", {"Power": 5}, START)
    real = DATA / "node-step" / "alice" / "17_0_c1.h5"
    assert describe(path, "c1") == describe(real, "c1")
    assert path.read_bytes()[8] == real.read_bytes()[8] == 0
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


FLOATS = ("Time", "Utilization", "ReadMB", "WriteMB")
values = st.dictionaries(
    st.sampled_from(["CPUFrequency", "GPUMemMB", "RSS", "VMSize", "Pages"]),
    st.none() | st.integers(0, 2**64 - 1),
)
numbers = st.dictionaries(
    st.sampled_from(["CPUTime", "CPUUtilization", "GPUUtilization", "ReadMB", "WriteMB"]),
    st.none() | st.floats(allow_nan=False),
)


@given(st.lists(st.tuples(st.integers(0, 10**6), values, numbers), max_size=40), st.integers(1, 40))
def test_writer_output_reads_back(
    samples: list[tuple[int, dict[str, int | None], dict[str, float | None]]], every: int
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "5_0_c1.h5"
        with NodeStepWriter(path, STEP, start=START) as writer:
            for number, (second, integers, floats) in enumerate(samples):
                writer.append("Tasks", {**integers, **floats}, START + second, 0)
                if number % every == 0:
                    writer.flush()
        with open_profile(path) as profile:
            assert profile.closed
            found = [row for table in profile.tables for row in rows(table)]
            names = profile.tables[0].fields if profile.tables else ()
    expected = []
    for second, integers, floats in samples:
        row: dict[str, float] = {"ElapsedTime": second, "EpochTime": START + second}
        for name in names[2:]:
            value = {**integers, **floats}.get(name)
            none = float(2**64 - 2) if name.endswith(FLOATS) else 2**64 - 2
            row[name] = none if value is None else value
        expected.append(tuple(row[name] for name in names))
    assert found == expected


CHILD = """
import sys
from ccpipe.formats.slurm_profile.table import NodeStep
from ccpipe.formats.slurm_profile.writer import NodeStepWriter
writer = NodeStepWriter(sys.argv[1], NodeStep(step="0", node="c1"), start=1000)
second = 0
while True:
    for task in range(8):
        writer.append("Tasks", {"RSS": second}, 1000 + second, task)
    writer.flush()
    second += 1
    sys.stdout.write(f"{second}\\n")
    sys.stdout.flush()
"""


@pytest.mark.parametrize("attempt", range(6))
def test_writer_killed_leaves_flushed_rows(tmp_path: Path, attempt: int) -> None:
    """A process that flushes continuously is killed by SIGKILL at a random time.

    Unordered writes left a file that libhdf5 could not read in 2 of 150 cases.
    """
    path = tmp_path / "5_0_c1.h5"
    with (tmp_path / "out").open("w+") as out:
        process = subprocess.Popen([sys.executable, "-c", CHILD, path], stdout=out)
        while (tmp_path / "out").stat().st_size == 0:
            time.sleep(0.01)
        time.sleep(0.05 + 0.037 * attempt)
        process.kill()
        assert process.wait() == -signal.SIGKILL
        out.seek(0)
        flushed = int(out.read().split("\n")[-2])
    with open_profile(path) as profile:
        assert (profile.damage, profile.closed) == ([], False)
        for table in profile.tables:
            assert table.read()["RSS"].tolist() == list(range(len(table)))
            assert flushed <= len(table) <= flushed + 1
    with h5py.File(path) as file:
        assert all(len(table[:]) >= flushed for table in file["c1/Tasks"].values())


def test_writer_flush_writes_only_new_data(tmp_path: Path) -> None:
    def written() -> int:
        lines = Path("/proc/self/io").read_text().splitlines()
        return int(next(line for line in lines if line.startswith("wchar")).split()[1])

    costs: list[int] = []
    with NodeStepWriter(tmp_path / "5_0_c1.h5", STEP, start=START) as writer:
        for block in range(40):
            begin = written()
            for second in range(50):
                writer.append("Tasks", {"RSS": second}, START + 50 * block + second, 0)
                writer.flush()
            costs.append(written() - begin)
    assert max(costs[20:]) < 1.5 * max(costs[:20])


def test_writer_flushes_before_memory_fills(tmp_path: Path) -> None:
    path = tmp_path / "5_0_c1.h5"
    with NodeStepWriter(path, STEP, start=START) as writer:
        for second in range(10_001):
            writer.append("Energy", {"Power": second}, START + second)
        assert len(read_contents(path)["0 /Steps/0/Nodes/c1/Energy"][1]) == 24 * 10_000


def test_writer_renames_file_of_earlier_run(tmp_path: Path) -> None:
    """Slurm overwrites it when the job is requeued onto the same node."""
    path = write_node_step(tmp_path / "5_0_c1.h5", rows=3)
    write_node_step(path, rows=4)
    write_node_step(path, rows=5)
    names = sorted(file.name for file in tmp_path.iterdir())
    assert names == [".5_0_c1.0.h5", ".5_0_c1.1.h5", "5_0_c1.h5"]
    lengths = {}
    for name in names:
        with open_profile(tmp_path / name) as profile:
            assert profile.node_steps[0].job == 5
            lengths[name] = len(profile.tables[0])
    assert lengths == {".5_0_c1.0.h5": 3, ".5_0_c1.1.h5": 4, "5_0_c1.h5": 5}
    assert keep_aside(tmp_path / "9_0_c1.h5") is None


@pytest.mark.parametrize(
    ("series", "values", "seconds", "reason"),
    [
        ("Energy", {"Voltage": 3}, START, "no field 'Voltage'"),
        ("Energy", {"Power": -1}, START, "Power is -1"),
        ("Energy", {"Power": 2**64}, START, "not a number from 0 to 2"),
        ("Energy", {"Power": float("nan")}, START, "Power is nan"),
        ("Energy", {"Power": 1}, float("inf"), "time is inf"),
        ("Burst", {"x": 1}, START, "not a known series"),
        ("a/b", {"x": 1}, START, "cannot name a series"),
    ],
)
def test_writer_rejects_invalid_tables_and_values(
    tmp_path: Path, series: str, values: dict[str, float], seconds: float, reason: str
) -> None:
    path = tmp_path / "5_0_c1.h5"
    with NodeStepWriter(path, STEP, start=START) as writer:
        writer.append("Energy", {"Power": 1}, START)
        with pytest.raises(EncodeError, match=reason):
            writer.append(series, values, seconds)
        with pytest.raises(EncodeError, match="exists already"):
            writer.create_table("Energy")
    with open_profile(path) as profile:
        assert [rows(table) for table in profile.tables] == [[(0, START, 1)]]


FULL_DISK = """
import resource, signal, sys
from ccpipe.formats.slurm_profile.table import NodeStep
from ccpipe.formats.slurm_profile.writer import NodeStepWriter
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
writer = NodeStepWriter(sys.argv[1], NodeStep(step="0", node="c1"), start=1000)
for second in range(500):
    if second == 100:
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, resource.RLIM_INFINITY))
    if second == 300:
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    writer.append("Tasks", {"RSS": second}, 1000 + second, 0)
    try:
        writer.flush()
    except OSError as error:
        print(second, error.errno, flush=True)
writer.close()
"""


def test_writer_raises_on_full_disk_and_keeps_flushed_rows(tmp_path: Path) -> None:
    path = tmp_path / "5_0_c1.h5"
    done = subprocess.run(
        [sys.executable, "-c", FULL_DISK, path], capture_output=True, text=True, check=False
    )
    failed = [int(line.split()[0]) for line in done.stdout.splitlines()]
    assert failed
    assert min(failed) >= 100
    with open_profile(path) as profile:
        found = profile.tables[0].read()["RSS"].tolist()
    assert found[:100] == list(range(100))
    assert len(found) >= min(failed)
    assert done.returncode >= 0


def test_writer_omits_unknown_attributes_of_node_step(tmp_path: Path) -> None:
    step = NodeStep(step="0", node="c1", node_index=3, tasks=2, start_time=time.ctime(START))
    with create_file(tmp_path / "made.h5") as file:
        write_attributes(make_path(file, ["c1"]), step)
    with h5py.File(tmp_path / "made.h5") as file:
        assert dump(file["c1"]) == {
            "@Node Name": "c1",
            "@Node Index": 3,
            "@Number of Tasks": 2,
            "@Start Time": time.ctime(START),
        }
