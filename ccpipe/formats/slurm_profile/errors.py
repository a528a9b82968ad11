"""Why a profile file cannot be read.

::

    DataError
    └── ProfileError             names the file, the place in it and the reason
        ├── LiveProfileError     nothing is on disk yet: the step runs, or its daemon was killed
        ├── DamagedProfileError  truncated, overwritten, or built to do harm
        └── ForeignProfileError  another kind of file
"""

from os import PathLike, fspath

from ccpipe.errors import DataError


class ProfileError(DataError):
    """A profile file, or one place in it, cannot be read; the rest of it may be sound."""

    def __init__(self, path: str | PathLike[str], reason: str, where: str = "") -> None:
        """Name the file `path`, the `reason`, and `where` in the file: an HDF5 path."""
        super().__init__(": ".join(part for part in (fspath(path), where, reason) if part))
        self.path = fspath(path)
        self.where = where
        self.reason = reason


class LiveProfileError(ProfileError):
    """Slurm's plug-in keeps everything in memory until the step ends: nothing can be read yet."""


class DamagedProfileError(ProfileError):
    """The bytes contradict each other or the end of the file."""


class ForeignProfileError(ProfileError):
    """The file is no HDF5 file, or holds something else than a profile."""
