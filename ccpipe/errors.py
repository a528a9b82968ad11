"""Every error that ccpipe raises on purpose, as one tree.

::

    CcpipeError
    ├── UsageError          the command line asks for something that cannot be       exit 64
    ├── ConfigError         configuration or a recipe is wrong; names the key path   exit 78
    ├── MissingExtra        a library is not installed; says the pip line to type    exit 69
    ├── DataError           bytes or records break a rule                            exit 65
    │   ├── EncodeError     a record cannot be written in the format asked for
    │   └── RejectedError   a store refuses records for good: do not retry
    ├── UnavailableError    a store or the bus cannot be reached: try again          exit 69
    └── DeniedError         the other side refuses us: credentials or permissions    exit 77

Bad *lines* are no exceptions: a decoder returns them (``Lines.rejected``), so that one bad line
costs one line. Exit codes are those of BSD's ``sysexits.h``.
"""

from collections.abc import Sequence


class CcpipeError(Exception):
    """The root of the tree; catching it catches what ccpipe raises on purpose, nothing else."""

    exit_code = 70
    """What a command ends with when this error stops it (``EX_SOFTWARE``)."""


class UsageError(CcpipeError):
    """The command line asks for something that cannot be."""

    exit_code = 64


class ConfigError(CcpipeError):
    """Configuration or a recipe is wrong: the message names file, key path and a suggestion."""

    exit_code = 78


class MissingExtra(CcpipeError):  # noqa: N818 - it names what is missing, as its message does
    """A library that an optional part needs is not installed."""

    exit_code = 69

    def __init__(self, library: str, extra: str) -> None:
        """Name the missing `library` and the `extra` of ccpipe that brings it."""
        super().__init__(f"{library} is not installed; type: pip install 'ccpipe[{extra}]'")
        self.library = library
        self.extra = extra


class DataError(CcpipeError):
    """Bytes or records break a rule of their format."""

    exit_code = 65


class EncodeError(DataError):
    """A record cannot be written in the format asked for."""


class RejectedError(DataError):
    """A store refuses records for good, so that trying again is pointless.

    `indices` are the positions of the bad records in what was written, where the store names
    them; ``None`` where it does not, and the pipeline then halves the batch to find them.
    """

    def __init__(self, reason: str, indices: Sequence[int] | None = None) -> None:
        """Keep the store's `reason` in its own words."""
        super().__init__(reason)
        self.indices = indices


class UnavailableError(CcpipeError):
    """A store or the bus cannot be reached or is overloaded: the same write may succeed later."""

    exit_code = 69


class DeniedError(CcpipeError):
    """The other side refuses us: wrong credentials or missing permissions."""

    exit_code = 77
