"""Converts files of newer HDF5 formats, in a process that may crash without harm.

The process reads with libhdf5 and writes the structures that ``ccpipe.formats.slurm_profile.hdf5``
reads. Limits on its memory, time and output keep a hostile file from doing more than making it
fail.
"""

import os
import resource
import subprocess
import sys
import tempfile
from os import PathLike, fspath
from pathlib import Path
from typing import Any

from ccpipe.errors import MissingExtra
from ccpipe.formats.slurm_profile.errors import DamagedProfileError
from ccpipe.formats.slurm_profile.hdf5.storage import Storage

SECONDS = 60
"""Of CPU; a job file of 150 MB takes two."""

MEMORY = 4 * 2**30
EXPANSION = 64
"""How much larger than the file its conversion may be, beside ``HEADROOM``."""

HEADROOM = 256 * 2**20
MAX_CHUNK = 4 * 2**20
MAX_DEPTH = 16
SMALL = 2**16
"""Bytes of an attribute, and of one record."""

PROGRAM = f"import sys, {__name__} as newer; sys.exit(newer.main(*sys.argv[1:]))"
FAILED = 3
"""The exit status that goes with a reason on standard error."""


def convert(path: str | PathLike[str]) -> Storage:
    """Return the same profile in structures that can be read here; nothing is left on disk.

    Raises
    ------
    DamagedProfileError
        if libhdf5 refuses the file, or crashes while it reads it
    MissingExtra
        if h5py is not installed

    """
    _require_h5py()
    with tempfile.TemporaryDirectory(prefix="ccpipe-profile-") as folder:
        target = Path(folder) / "converted.h5"
        command = [sys.executable, "-c", PROGRAM, fspath(path), str(target)]
        environment = {**os.environ, "HDF5_PLUGIN_PRELOAD": "::"}  # no filters from elsewhere
        try:
            done = subprocess.run(  # noqa: S603 - the program is this module
                command, capture_output=True, timeout=4 * SECONDS, env=environment, check=False
            )
        except subprocess.TimeoutExpired:
            raise DamagedProfileError(path, "libhdf5 did not come to an end") from None
        if done.returncode != 0:
            words = done.stderr.decode(errors="replace").strip().splitlines()
            reason = words[-1][:300] if words and done.returncode == FAILED else ""
            status = f"libhdf5 crashed while reading it (status {done.returncode})"
            raise DamagedProfileError(path, reason or status)
        return Storage(target)


def _require_h5py() -> Any:
    try:
        import h5py
    except ImportError:
        raise MissingExtra("h5py", "profile") from None
    return h5py


class _Copy:
    """Copies groups, tables and simple attributes, by hard links of the same file only."""

    def __init__(self, h5py: Any, size: int) -> None:
        self._h5py = h5py
        self._left = size * EXPANSION + HEADROOM
        self._seen: set[int] = set()

    def group(self, source: Any, target: Any, depth: int = 0) -> None:
        self._attributes(source, target)
        for name in source:
            link = source.get(name, getlink=True)
            if not isinstance(link, self._h5py.HardLink):
                continue
            item = source[name]
            address = self._h5py.h5o.get_info(item.id).addr
            if address in self._seen or depth > MAX_DEPTH:
                raise ValueError(f"{name!r:.80} is linked to twice")
            self._seen.add(address)
            if isinstance(item, self._h5py.Group):
                self.group(item, target.create_group(name), depth + 1)
            elif isinstance(item, self._h5py.Dataset):
                self._dataset(item, target, name)

    def _attributes(self, source: Any, target: Any) -> None:
        for name in source.attrs:
            attribute = source.attrs.get_id(name)
            if attribute.dtype.kind in "iufS" and attribute.get_storage_size() <= SMALL:
                target.attrs.create(name, source.attrs[name], dtype=attribute.dtype)

    def _dataset(self, source: Any, target: Any, name: str) -> None:
        layout = source.id.get_create_plist().get_layout()
        if layout not in (
            self._h5py.h5d.COMPACT,
            self._h5py.h5d.CONTIGUOUS,
            self._h5py.h5d.CHUNKED,
        ):
            raise ValueError(f"{name!r:.80} keeps its rows in other files")
        if source.external or source.ndim > 1 or source.dtype.itemsize > SMALL:
            raise ValueError(f"{name!r:.80} is no table")
        rows, width = source.size, source.dtype.itemsize
        self._left -= rows * width
        if self._left < 0:
            raise ValueError("the tables claim far more bytes than the file has")
        chunk = max(1, min(rows, MAX_CHUNK // width))
        copy = target.create_dataset(name, (rows,), source.dtype, chunks=(chunk,), maxshape=(None,))
        self._attributes(source, copy)
        for start in range(0, rows, chunk):
            stop = min(start + chunk, rows)
            copy[start:stop] = source[start:stop] if source.ndim else [source[()]]


def main(source: str, target: str) -> int:
    """Convert one file; return the exit status."""
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS + 5))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    h5py = _require_h5py()
    try:
        size = Path(source).stat().st_size
        limit = size * EXPANSION + 2 * HEADROOM
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        with _open(h5py, source) as old, h5py.File(target, "w", libver=("earliest", "v110")) as new:
            _Copy(h5py, size).group(old, new)
    except Exception as error:  # noqa: BLE001 - whatever libhdf5 and h5py raise, it is the file's
        print(" ".join(str(error).split()), file=sys.stderr)  # noqa: T201
        return FAILED
    return 0


def _open(h5py: Any, path: str) -> Any:
    """Open a file; one that a killed process had open for SWMR too."""
    try:
        return h5py.File(path, "r", locking=False)
    except OSError:
        return h5py.File(path, "r", locking=False, swmr=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2]))
