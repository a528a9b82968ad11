"""Files of newer HDF5 formats are converted by libhdf5 in a process of its own."""

import signal
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest

from ccpipe.formats.slurm_profile import DamagedProfileError, open_profile
from ccpipe.formats.slurm_profile import newer as newer_module
from tests.formats.slurm_profile.samples import DATA, read_contents

SAMPLE = DATA / "merged" / "job_17.h5"
TIMES = [("ElapsedTime", "<u8"), ("EpochTime", "<u8")]


def rewrite(path: Path, libver: object) -> Path:
    """Copy a real file into another format."""
    with h5py.File(SAMPLE) as old, h5py.File(path, "w", libver=libver) as new:
        for name in old:
            old.copy(name, new)
    return path


@pytest.mark.parametrize("libver", ["v108", "v110", "latest"])
def test_files_of_every_format_read_alike(tmp_path: Path, libver: str) -> None:
    """Those that libhdf5 2.0 writes by default among them."""
    path = rewrite(tmp_path / "job_17.h5", (libver, libver) if libver != "latest" else libver)
    assert read_contents(path) == read_contents(SAMPLE)


def test_a_file_whose_swmr_writer_was_killed_is_read(tmp_path: Path) -> None:
    """Other writers than ccpipe's may use SWMR; plain readers refuse what it leaves."""
    path = tmp_path / "1_0_c1.h5"
    program = f"""
import h5py, numpy as np, os, signal
file = h5py.File({str(path)!r}, "w", libver=("v110", "v110"))
table = file.create_dataset("c1/Energy", (0,), {[*TIMES, ("Power", "<u8")]!r},
                            chunks=(10,), maxshape=(None,))
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


def test_what_libhdf5_refuses_is_an_error_with_its_words(tmp_path: Path) -> None:
    """A damaged file of a newer format."""
    data = bytearray(rewrite(tmp_path / "job_17.h5", "latest").read_bytes())
    data[60:400] = bytes(340)
    (tmp_path / "job_17.h5").write_bytes(data)
    with pytest.raises(DamagedProfileError, match=r"job_17.h5: .*[Uu]nable"):
        open_profile(tmp_path / "job_17.h5")


def test_links_and_storage_elsewhere_are_refused(tmp_path: Path) -> None:
    """Whoever converts a user's file must not be made to read another one for them."""
    secret = tmp_path / "secret.h5"
    with h5py.File(secret, "w") as file:
        file["Energy"] = np.ones(5, [*TIMES, ("Power", "<u8")])
    path = tmp_path / "1_0_c1.h5"
    with h5py.File(path, "w", libver="latest") as file:
        file["c1/Energy"] = np.ones(2, [*TIMES, ("Power", "<u8")])
        file["c1/Stolen"] = h5py.ExternalLink(str(secret), "Energy")
        file["c1/Linked"] = h5py.SoftLink("/c1/Energy")
    with open_profile(path) as profile:
        assert [table.series for table in profile.tables] == ["Energy"]
    layout = h5py.VirtualLayout((5,), [*TIMES, ("Power", "<u8")])
    layout[:] = h5py.VirtualSource(str(secret), "Energy", (5,))
    with h5py.File(path, "a", libver="latest") as file:
        file.create_virtual_dataset("c1/Virtual", layout)
    with pytest.raises(DamagedProfileError, match="keeps its rows in other files"):
        open_profile(path)


def test_a_table_that_claims_too_much_is_refused(tmp_path: Path) -> None:
    """Before anything is read of it."""
    path = tmp_path / "1_0_c1.h5"
    with h5py.File(path, "w", libver="latest") as file:
        file.create_dataset("c1/Energy", (2**50,), [*TIMES, ("Power", "<u8")], chunks=(10,))
    with pytest.raises(DamagedProfileError, match="claim far more bytes"):
        open_profile(path)


def test_a_crash_is_an_error_and_not_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever libhdf5 does, this process goes on."""
    path = rewrite(tmp_path / "job_17.h5", "latest")
    monkeypatch.setattr(newer_module, "PROGRAM", "import os; os.abort()")
    with pytest.raises(DamagedProfileError, match=r"libhdf5 crashed while reading it .*-6"):
        open_profile(path)


def test_limits_hold_in_the_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A conversion that needs too long is ended."""
    path = rewrite(tmp_path / "job_17.h5", "latest")
    monkeypatch.setattr(newer_module, "PROGRAM", "import time; time.sleep(60)")
    monkeypatch.setattr(newer_module, "SECONDS", 0.1)
    with pytest.raises(DamagedProfileError, match="did not come to an end"):
        open_profile(path)


def test_nothing_is_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The converted file is gone as soon as it is open."""
    path = rewrite(tmp_path / "job_17.h5", "latest")
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    with open_profile(path) as profile:
        assert list(folder.iterdir()) == []
        assert len(profile.tables[0].read()) > 0
