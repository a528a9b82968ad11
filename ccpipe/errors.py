"""Every error that ccpipe raises on purpose, as one tree.

::

    CcpipeError
    ├── UsageError          the command line or an argument is wrong                 exit 64
    ├── ConfigError         configuration or a recipe is wrong; names the key path   exit 78
    ├── MissingInputError   an input file does not exist or cannot be opened         exit 66
    ├── CreateError         an output file or directory cannot be created or written    exit 73
    ├── OutputError         standard output is closed or full                        exit 74
    ├── MissingExtra        a library is not installed; names the pip command        exit 69
    ├── DataError           bytes or records break a rule                            exit 65
    │   ├── EncodeError     a record cannot be written in the requested format
    │   └── RejectedError   a store rejects records permanently: do not retry
    ├── UnavailableError    a store or the broker cannot be reached: retry           exit 69
    │   └── TimedOutError   a store did not answer in time: retry with less
    └── DeniedError         access denied: credentials or permissions                exit 77

Bad *lines* do not raise: a decoder returns them (``Lines.rejected``), so that a bad line does not
affect the others. Exit codes are those of BSD's ``sysexits.h``.
"""

import os
from collections.abc import Iterable, Sequence


class CcpipeError(Exception):
    """The base class of all errors that ccpipe raises on purpose."""

    exit_code = 70
    """Exit code of a command that this error ends (``EX_SOFTWARE``)."""


class UsageError(CcpipeError):
    """The command line or an argument is wrong."""

    exit_code = 64


class ConfigError(CcpipeError):
    """Configuration or a recipe is wrong; the message names the file and the key path."""

    exit_code = 78


class MissingInputError(CcpipeError):
    """An input file does not exist or cannot be opened."""

    exit_code = 66


class CreateError(CcpipeError):
    """An output file or directory cannot be created or written; the message names it."""

    exit_code = 73


class OutputError(CcpipeError):
    """Standard output is closed, or the disk behind it is full."""

    exit_code = 74


class MissingExtra(CcpipeError):  # noqa: N818 - named for what is missing
    """A library that an optional part needs is not installed."""

    exit_code = 69

    def __init__(self, library: str, extra: str) -> None:
        """Name the missing `library` and the `extra` of ccpipe that installs it."""
        super().__init__(f"{library} is not installed; type: pip install 'ccpipe[{extra}]'")
        self.library = library
        self.extra = extra


class DataError(CcpipeError):
    """Bytes or records break a rule of their format."""

    exit_code = 65


class EncodeError(DataError):
    """A record cannot be written in the requested format."""


class RejectedError(DataError):
    """A store rejects records permanently, so that retrying is pointless.

    `indices` are the positions of the bad records in the batch, if the store names them. If it
    does not they are ``None``, and the pipeline halves the batch until it has found them.
    """

    def __init__(self, reason: str, indices: Sequence[int] | None = None) -> None:
        """Keep the `reason` as the store words it."""
        super().__init__(reason)
        self.indices = indices


class UnavailableError(CcpipeError):
    """A store or the broker is unreachable or overloaded: the same write may succeed later."""

    exit_code = 69

    def __init__(self, reason: str = "", *, retry_after: float = 0.0) -> None:
        """Keep the `reason`, and after how many seconds to retry, if the store asked for that."""
        super().__init__(reason)
        self.retry_after = retry_after


class TimedOutError(UnavailableError):
    """A store did not answer in time: a smaller write may succeed sooner."""


class DeniedError(CcpipeError):
    """Access denied: wrong credentials or missing permissions."""

    exit_code = 77


def system_reason(error: BaseException) -> str:
    """Return the system's error message without Python's additions: ``Connection refused``.

    asyncio adds the address in Python's notation, which the caller's message contains already.
    An error that is not the system's is returned as its text.
    """
    text = str(error)
    if not isinstance(error, OSError):
        return text
    if error.errno and ("Connect call failed" in text or "while attempting to bind" in text):
        return os.strerror(error.errno)
    return error.strerror or text or type(error).__name__


def create_reason(error: OSError) -> str:
    """Return why a directory cannot be created; a file may have its name."""
    is_blocked = isinstance(error, FileExistsError | NotADirectoryError)
    return "not a directory" if is_blocked else system_reason(error)


def suggestion(word: str, known: Iterable[str], otherwise: str = "") -> str:
    """Return ``did you mean 'x'?`` for a known word that is similar; else all that are known."""
    words = list(known)
    return _did_you_mean(word, words) or otherwise or f"known are {', '.join(words)}"


def invalid_choice(value: str, choices: Iterable[str]) -> str:
    """Return the error message for a value that is not one of `choices`."""
    words = list(map(str, choices))
    hint = _did_you_mean(value, words)
    return f"invalid value {value!r}{hint and f'; {hint}'} (one of {', '.join(words)})"


def _did_you_mean(word: str, known: list[str]) -> str:
    import difflib

    close = difflib.get_close_matches(word, known, n=1)
    close = close or [each for each in known if word and each.startswith(f"{word}_")]
    return f"did you mean {close[0]!r}?" if len(close) == 1 else ""
