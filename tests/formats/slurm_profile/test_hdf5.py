"""HDF5 files of any format, read in a process that may crash, and that process."""

import os
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

import h5py
import msgspec
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ccpipe.errors import MissingExtra
from ccpipe.formats.slurm_profile import hdf5, hdf5_process
from ccpipe.formats.slurm_profile.hdf5 import (
    HEAD,
    DamagedProfileError,
    Dataset,
    Failure,
    ForeignProfileError,
    GroupReply,
    Hdf5File,
    LiveProfileError,
    ObjectRequest,
    RowsReply,
    TableReply,
)
from ccpipe.formats.slurm_profile.hdf5_process import Reader
from ccpipe.formats.slurm_profile.reader import open_profile
from tests.formats.slurm_profile.samples import DATA, dump, read_bytes, read_contents, read_file

FORMAT: Any = ("earliest", "v110")
SAMPLE = DATA / "node-step" / "alice" / "17_0_c1.h5"
MERGED = DATA / "merged" / "job_17.h5"
TIMES = [("ElapsedTime", "<u8"), ("EpochTime", "<u8")]
ENERGY: Any = [*TIMES, ("Power", "<u8")]


def rewrite(path: Path, libver: object) -> Path:
    with h5py.File(MERGED) as old, h5py.File(path, "w", libver=libver) as new:
        for name in old:
            old.copy(name, new)
    return path


def table_in(path: Path, name: str) -> Dataset:
    found = Hdf5File(path).open(name)
    assert isinstance(found, Dataset)
    return found


def child() -> subprocess.Popen[bytes]:
    read_file(SAMPLE)
    assert hdf5._process._running is not None
    return hdf5._process._running


@pytest.mark.parametrize("libver", ["earliest", "v108", "v110", "latest"])
def test_hdf5_reads_every_format_alike(tmp_path: Path, libver: str) -> None:
    bounds = (libver, "v110") if libver == "earliest" else (libver, libver)
    path = rewrite(tmp_path / "job_17.h5", libver if libver == "latest" else bounds)
    assert read_contents(path) == read_contents(MERGED)


kinds = st.sampled_from(["<u8", "<f8", ">u4", "<i2", ">f8", "<f4", "u1", "S5"])


@given(
    kinds=st.lists(kinds, min_size=1, max_size=8),
    rows=st.integers(0, 60),
    chunk=st.integers(1, 25),
    level=st.none() | st.integers(0, 9),
    seed=st.integers(0, 2**32),
)
@example(kinds=["<u8"], rows=60, chunk=1, level=0, seed=0)
def test_hdf5_reads_files_of_h5py(
    kinds: list[str], rows: int, chunk: int, level: int | None, seed: int
) -> None:
    dtype = np.dtype([(f"field {number}", kind) for number, kind in enumerate(kinds)])
    size = rows * dtype.itemsize
    data = np.frombuffer(np.random.default_rng(seed).bytes(size), dtype)
    deflate = {} if level is None else {"compression": "gzip", "compression_opts": level}
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "made.h5"
        with h5py.File(path, "w", libver=FORMAT) as file:
            group = file.create_group("group")
            group.create_dataset("chunked", data=data, chunks=(chunk,), maxshape=(None,), **deflate)
            group.create_dataset("contiguous", data=data)
        found = read_file(path)["group"]
        table = table_in(path, "/group/chunked")
        assert table.dtype == dtype
        assert table.read(rows // 3, rows // 2).tobytes() == data[rows // 3 : rows // 2].tobytes()
    assert found == {"chunked": data.tobytes(), "contiguous": data.tobytes()}


def test_hdf5_reads_attributes_of_one_value(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "made.h5", "w", libver=FORMAT) as file:
        attributes = file.attrs
        attributes["scalar"] = np.int32(-7)
        attributes["array"] = np.array([2**40], "<i8")
        attributes["float"] = np.array([0.5], ">f8")
        attributes["long float"] = np.longdouble(0.25)
        attributes["text"] = np.bytes_("Mon\N{LATIN SMALL LETTER A WITH RING ABOVE}".encode())
        attributes["several"] = np.arange(3)
        attributes["record"] = np.zeros(1, [("x", "<u8")])
        attributes["of any length"] = "text"
    found = Hdf5File(tmp_path / "made.h5").root().attributes
    assert found == {
        "scalar": -7,
        "array": 2**40,
        "float": 0.5,
        "long float": 0.25,
        "text": "Mon\xe5",
    }


def test_hdf5_reports_file_with_only_superblock_as_live() -> None:
    """Slurm's plug-in keeps 96 bytes on disk until the step ends."""
    with pytest.raises(LiveProfileError, match="the step still runs"):
        read_file(DATA / "live" / "35_0_c1.h5")
    with pytest.raises(LiveProfileError, match="empty"):
        read_bytes(b"")


def test_hdf5_reports_other_files_as_foreign(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ForeignProfileError, match="not an HDF5 file"):
        read_bytes(b"Step,Node\n" * 20)
    for path in (tmp_path, tmp_path / "pipe"):
        with pytest.raises(ForeignProfileError, match="not a regular file"):
            read_file(path)
    with pytest.raises(FileNotFoundError):
        read_file(tmp_path / "missing.h5")


def test_hdf5_reads_file_of_killed_swmr_writer(tmp_path: Path) -> None:
    """Other writers may use SWMR; plain readers refuse their leftovers."""
    path = tmp_path / "1_0_c1.h5"
    program = f"""
import h5py, numpy as np, os, signal
file = h5py.File({str(path)!r}, "w", libver=("v110", "v110"))
table = file.create_dataset("c1/Energy", (0,), {ENERGY!r}, chunks=(10,), maxshape=(None,))
file.swmr_mode = True
for row in range(25):
    table.resize((row + 1,))
    table[row] = (row, 1000 + row, row)
    table.flush()
os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-c", program], check=False)
    assert done.returncode == -signal.SIGKILL
    with open_profile(path) as profile:
        assert profile.tables[0].read()["Power"].tolist() == list(range(25))


def test_hdf5_opens_no_other_file(tmp_path: Path) -> None:
    """A user's file must not make its reader open another file."""
    secret = tmp_path / "secret.h5"
    with h5py.File(secret, "w") as file:
        file["Energy"] = np.ones(5, ENERGY)
    layout = h5py.VirtualLayout((5,), ENERGY)
    layout[:] = h5py.VirtualSource(str(secret), "Energy", (5,))
    path = tmp_path / "1_0_c1.h5"
    with h5py.File(path, "w", libver="latest") as file:
        file["c1/Energy"] = np.ones(2, ENERGY)
        file["c1/Stolen"] = h5py.ExternalLink(str(secret), "Energy")
        file["c1/Linked"] = h5py.SoftLink("/c1/Energy")
        file.create_virtual_dataset("c1/Virtual", layout)
        file["c1"].create_dataset("Raw", (2,), ENERGY, external=[(str(secret), 0, 48)])
    with open_profile(path) as profile:
        assert [table.series for table in profile.tables] == ["Energy"]
        assert [(error.where, error.reason) for error in profile.damage] == [
            ("/c1/Raw", "keeps its rows in other files"),
            ("/c1/Virtual", "keeps its rows in other files"),
        ]
    for name in ("/c1/Stolen", "/c1/Linked"):
        with pytest.raises(DamagedProfileError, match=f"{name}: a link to another place"):
            Hdf5File(path).open(name)


def test_hdf5_rejects_table_linked_twice(tmp_path: Path) -> None:
    """Otherwise a small file could expand without bound."""
    with h5py.File(tmp_path / "made.h5", "w", libver=FORMAT) as file:
        first = file.create_group("first")
        first["table"] = np.zeros(5, [("x", "<u8")])
        first["again"] = first["table"]
        first["circle"] = first
    with pytest.raises(DamagedProfileError, match="linked to twice"):
        read_file(tmp_path / "made.h5")


def test_hdf5_rejects_tables_much_larger_than_file(tmp_path: Path) -> None:
    """Chunks sharing their bytes could expand a small file without bound."""
    rows = 2**20
    with h5py.File(tmp_path / "made.h5", "w", libver=FORMAT) as file:
        zeros = np.zeros(40 * rows, [("x", "<u8")])
        file.create_dataset("t", data=zeros, chunks=(rows,), compression=9)
    data = bytearray((tmp_path / "made.h5").read_bytes())
    with h5py.File(tmp_path / "made.h5") as file:
        places = [file["t"].id.get_chunk_info(number).byte_offset for number in range(40)]
    first = places[0].to_bytes(8, "little")
    for place in places[1:]:
        data = data.replace(place.to_bytes(8, "little"), first)
    with pytest.raises(DamagedProfileError, match="/t: the tables claim far more bytes"):
        read_bytes(bytes(data[: places[1]]))


def test_hdf5_reads_no_rows_never_stored(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "made.h5", "w", libver=FORMAT) as file:
        table = file.create_dataset(
            "t", data=np.ones(20, [("x", "<u8")]), chunks=(10,), maxshape=(None,)
        )
        table.resize((2**62,))
    found = table_in(tmp_path / "made.h5", "/t")
    assert (len(found), found.claimed) == (20, 2**62)
    assert found.read()["x"].tolist() == [1] * 20


def test_hdf5_reports_errors_of_libhdf5(tmp_path: Path) -> None:
    data = bytearray(rewrite(tmp_path / "job_17.h5", "latest").read_bytes())
    data[60:400] = bytes(340)
    (tmp_path / "job_17.h5").write_bytes(data)
    with pytest.raises(DamagedProfileError, match=r"job_17.h5: .*[Uu]nable"):
        open_profile(tmp_path / "job_17.h5")


def test_hdf5_reports_file_replaced_while_reading_as_damaged(tmp_path: Path) -> None:
    """Rows of another file are never mixed in."""
    path = tmp_path / "3_0_c1.h5"
    path.write_bytes(SAMPLE.read_bytes())
    table = table_in(path, "/c1/Energy")
    table._file.close()  # as the process does itself with the oldest of many files
    path.unlink()
    (tmp_path / "other").touch()  # takes the inode
    path.write_bytes(SAMPLE.read_bytes())
    with pytest.raises(DamagedProfileError, match="/c1/Energy: the file was replaced"):
        table.read()


def test_hdf5_survives_crash_except_for_object_read(tmp_path: Path) -> None:
    with open_profile(SAMPLE) as profile:
        first, second = profile.tables[:2]
        stopped = child()
        stopped.send_signal(signal.SIGSTOP)
        killer = threading.Timer(0.2, stopped.kill)
        killer.start()
        with pytest.raises(DamagedProfileError) as caught:
            first.read()
        killer.join()
        assert caught.value.where == "/c1/Energy"
        assert caught.value.reason == "libhdf5 crashed while reading it (status -9)"
        assert len(second.read()) == len(second)
        assert child().pid != stopped.pid


def test_hdf5_restarts_process_killed_between_files() -> None:
    table = table_in(SAMPLE, "/c1/Energy")
    ended = child()
    ended.kill()
    ended.wait()
    assert len(table.read()) == len(table)


def test_hdf5_gives_up_file_after_repeated_crashes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each crash requires a new process, so their number is limited."""
    child()
    hdf5._process.end()
    starts: list[list[str]] = []
    popen = subprocess.Popen

    def start(command: list[str], **options: Any) -> subprocess.Popen[bytes]:
        starts.append(command)
        return popen([sys.executable, "-c", "import os; os.abort()"], **options)

    file = Hdf5File(SAMPLE)
    with monkeypatch.context() as patch:
        patch.setattr(subprocess, "Popen", start)
        for reason in [*["crashed while reading it .status -6"] * 3, "crashed 3 times", "crashed"]:
            with pytest.raises(DamagedProfileError, match=f"17_0_c1.h5: libhdf5 {reason}"):
                file.root()
    assert len(starts) == 3
    assert read_file(SAMPLE)


def test_hdf5_names_extra_of_missing_library(monkeypatch: pytest.MonkeyPatch) -> None:
    hdf5._process.end()
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"pip install 'ccpipe\[hdf5\]'"):
        read_file(SAMPLE)


def test_hdf5_process_ends_with_parent() -> None:
    program = f"""
import os, signal
from ccpipe.formats.slurm_profile import hdf5, hdf5_process
from ccpipe.formats.slurm_profile.reader import open_profile
open_profile({str(SAMPLE)!r})
print(hdf5._process._running.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-c", program], check=False, stdout=subprocess.PIPE)
    assert done.returncode == -signal.SIGKILL
    pid = int(done.stdout)
    while Path(f"/proc/{pid}").exists() and "python" in Path(f"/proc/{pid}/cmdline").read_text():
        threading.Event().wait(0.01)


def test_hdf5_starts_own_process_after_fork() -> None:
    """Sharing a process would mix up the replies."""
    ours = child().pid
    pid = os.fork()
    if pid == 0:
        theirs = child().pid
        hdf5._process.end()
        os._exit(0 if theirs != ours else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert child().pid == ours


TABLE = "/c1/Energy"
PATHS = [DATA / "node-step" / "alice" / f"3_{step}_c1.h5" for step in (0, 1, 2, "batch")]


def request(number: int, name: str, stop: int | None = None) -> ObjectRequest:
    path = PATHS[number]
    status = path.stat()
    return ObjectRequest(number, os.fsencode(path), (status.st_dev, status.st_ino), name, 0, stop)


def test_hdf5_process_describes_objects_and_reads_rows() -> None:
    reader = Reader()
    group = reader.answer(request(0, "/c1"))
    assert isinstance(group, GroupReply)
    assert group.attributes["Node Name"] == "c1"
    table = reader.answer(request(0, TABLE))
    assert isinstance(table, TableReply)
    assert [field for field, _, _ in table.fields] == ["ElapsedTime", "EpochTime", "Power"]
    assert (table.width, table.rows) == (24, table.claimed)
    rows = reader.answer(request(0, TABLE, table.rows))
    with h5py.File(PATHS[0]) as file:
        assert rows == RowsReply(dump(file)["c1"]["Energy"])
    assert isinstance(reader.answer(request(0, "/c1/Nothing")), Failure)


@pytest.mark.parametrize("limit", ["MAX_BYTES", "MAX_FILES"])
def test_hdf5_process_limits_open_files(monkeypatch: pytest.MonkeyPatch, limit: str) -> None:
    """The least recently used file is closed, and reopened when needed."""
    monkeypatch.setattr(hdf5_process, limit, 2 if limit == "MAX_FILES" else 50_000)
    reader = Reader()
    sizes = [path.stat().st_size for path in PATHS]
    for number in [*range(len(PATHS)), 0, 1]:
        assert isinstance(reader.answer(request(number, TABLE, 1)), RowsReply)
        open_files = list(reader._files)
        assert open_files[-1] == number
        assert len(open_files) <= 2 or sum(sizes[other] for other in open_files) <= 50_000
    assert 0 in reader._files
    reader.answer(request(1, ""))
    assert 1 not in reader._files


def test_hdf5_process_reads_large_files_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Reader().answer(request(0, TABLE, 20))
    monkeypatch.setattr(hdf5_process, "READ_WHOLE", 0)
    reader = Reader()
    assert reader.answer(request(0, TABLE, 20)) == whole
    assert reader._files[0].file.driver == "sec2"


def run_instead(answer: str) -> subprocess.CompletedProcess[bytes]:
    program = f"""
from ccpipe.formats.slurm_profile import hdf5_process as process
process.SECONDS, process.MEMORY = 1, 2**29
def answer(self, request):
    {answer}
process.Reader.answer = answer
process.main()
"""
    body = msgspec.msgpack.encode(request(0, "/"))
    message = len(body).to_bytes(HEAD, "little") + body
    return subprocess.run(
        [sys.executable, "-c", program], input=message, check=False, capture_output=True
    )


def test_hdf5_process_limits_cpu_time_of_request() -> None:
    assert run_instead("while True: pass").returncode == -signal.SIGXCPU


def test_hdf5_process_limits_its_memory() -> None:
    done = run_instead("return process.RowsReply(bytes(2**30))")
    assert b"MemoryError" in done.stderr
