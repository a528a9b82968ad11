"""Files of one process."""

import os
import tempfile
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from ccpipe.node.linux.process_files import (
    environment,
    parse_transferred,
    proportional,
    unshared,
)

OWN = f"/proc/{os.getpid()}"


def test_our_own_files_are_read() -> None:
    """As the kernel has them."""
    io = parse_transferred(Path(OWN, "io").read_bytes())
    assert io is not None
    assert io[0] > 0
    resident = int(Path(OWN, "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    assert 0 < (unshared(OWN) or 0) <= resident * 1.1
    assert 0 < (proportional(OWN) or 0) <= resident * 1.1


def test_only_the_line_of_the_whole_share_counts(tmp_path: Path) -> None:
    """Newer kernels say what it is made of; before Linux 4.14 there is a file of all mappings."""
    (tmp_path / "smaps_rollup").write_text("Rss: 9 kB\nPss:  22 kB\nPss_Dirty: 7 kB\n")
    assert proportional(str(tmp_path)) == 22 * 1024
    (tmp_path / "smaps_rollup").unlink()
    (tmp_path / "smaps").write_text("a-b r\nPss:  2 kB\nc-d r\nPss:  3 kB\n")
    assert proportional(str(tmp_path)) == 5 * 1024


def test_more_shared_than_resident_is_unknown(tmp_path: Path) -> None:
    """The two are counted at different times."""
    (tmp_path / "statm").write_text("100 5 6 1 0 1 0\n")
    assert unshared(str(tmp_path)) is None


@given(st.binary(max_size=80))
def test_any_bytes_are_numbers_or_unknown(data: bytes) -> None:
    """Nothing is raised."""
    with tempfile.TemporaryDirectory() as folder:
        for name in ("statm", "smaps_rollup", "environ"):
            Path(folder, name).write_bytes(data)
        for read in (unshared, proportional):
            assert isinstance(read(folder), int | None)
        assert isinstance(parse_transferred(data), tuple | None)
        assert isinstance(environment(folder), dict)


def test_an_environment_is_that_of_the_start(tmp_path: Path) -> None:
    """Of ours a name that all have; of a process that ended, nothing."""
    assert (environment(OWN) or {})["PATH"]
    (tmp_path / "environ").write_bytes(b"A=1\0B=x=y\0nothing\0")
    assert environment(str(tmp_path)) == {"A": "1", "B": "x=y"}
    assert environment(str(tmp_path / "none")) is None
