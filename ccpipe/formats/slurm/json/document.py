"""JSON of Slurm's commands and of slurmrestd, in whichever dialect: looked at, never assumed.

22.05 writes plain numbers, with null or a mark for what is not set; 23.02 and later write
``{"set": …, "infinite": …, "number": …}``. A state is a word or a list of words. Keys come and go
with each version, so that whatever is missing is None.

Source: ``plugins/openapi/v0.0.38`` and ``plugins/data_parser/v0.0.40`` to ``v0.0.46`` of Slurm.
"""

import math
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from ccpipe.errors import DataError
from ccpipe.formats.slurm.reading import ParsedOutput, Record, RejectedRecord
from ccpipe.formats.slurm.resources import NO_VALUE, UNLIMITED
from ccpipe.formats.slurm.timestamp import SECOND
from ccpipe.formats.slurm.values import ABSENT, wait_status

MAX_BYTES = 2**30
"""Bytes of a document."""
MAX_TIME = 10**11
"""Seconds since the epoch beyond which nothing is a time."""


class _Document(msgspec.Struct):
    """What is common to all documents: lists of objects under well-known names."""

    jobs: list[msgspec.Raw] | None = None
    steps: list[msgspec.Raw] | None = None
    nodes: list[msgspec.Raw] | None = None
    sinfo: list[msgspec.Raw] | None = None
    partitions: list[msgspec.Raw] | None = None
    errors: list[msgspec.Raw] | None = None


def read_lists(
    payload: bytes, readers: "dict[str, Callable[[JsonObject], list[Record]]]"
) -> ParsedOutput[Record]:
    """Read the objects of some of a document's lists, each by its reader.

    An object that its reader refuses is rejected; so are errors that Slurm reports, where it
    reports records, too.

    Raises
    ------
    DataError
        if the bytes are no JSON object that holds one of these lists, or what Slurm reports
        instead.

    """
    document = _decode(payload)
    lists = {name: getattr(document, name) for name in readers}
    errors = [_error(raw) for raw in document.errors or ()]
    if all(found is None for found in lists.values()):
        missing = f"no list {' or '.join(map(repr, readers))} in the document"
        raise DataError("; ".join(["Slurm reports: " + error for error in errors]) or missing)
    reading: ParsedOutput[Record] = ParsedOutput()
    reading.rejected += [RejectedRecord(0, f"Slurm reports: {error}", b"") for error in errors]
    for name, read in readers.items():
        for position, raw in enumerate(lists[name] or ()):
            try:
                reading.records += read(JsonObject.decode(raw))
            except DataError as error:
                reason = f"{name}[{position}]: {error}"
                reading.rejected.append(RejectedRecord(position, reason, bytes(raw)))
    return reading


def _decode(payload: bytes) -> _Document:
    if len(payload) > MAX_BYTES:
        raise DataError(f"a document of more than {MAX_BYTES} bytes")
    try:
        return msgspec.json.decode(payload, type=_Document)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise DataError(f"not JSON of Slurm: {error}") from None
    except RecursionError:
        raise DataError("not JSON of Slurm: nested too deeply") from None


def _error(raw: msgspec.Raw) -> str:
    try:
        found = JsonObject.decode(raw)
        return found.text("error") or found.text("description") or bytes(raw).decode()[:200]
    except DataError:
        return bytes(raw[:200]).decode("utf-8", "replace")


class JsonObject:
    """An object whose members may be missing; a path of keys leads into inner objects."""

    __slots__ = ("members",)

    def __init__(self, members: dict[str, Any]) -> None:
        """Look at the members of a decoded object."""
        self.members = members

    @classmethod
    def decode(cls, raw: bytes | msgspec.Raw) -> "JsonObject":
        """Decode it, U+FFFD for bytes that are not UTF-8; raises DataError for other things."""
        try:
            members = msgspec.json.decode(raw)
        except UnicodeDecodeError:
            return cls.decode(bytes(raw).decode("utf-8", "replace").encode())
        except msgspec.MsgspecError as error:
            raise DataError(f"not JSON: {error}") from None
        except RecursionError:
            raise DataError("nested too deeply") from None
        if not isinstance(members, dict):
            raise DataError("not an object")
        return cls(members)

    def get(self, *path: str) -> Any:
        """Return whatever is there; None if nothing is."""
        found: Any = self.members
        for key in path:
            if not isinstance(found, dict):
                return None
            found = found.get(key)
        return found

    def objects(self, *path: str) -> "Iterator[JsonObject]":
        """Yield the objects of a list."""
        found = self.get(*path)
        for member in found if isinstance(found, list) else ():
            if not isinstance(member, dict):
                raise DataError(f"{_name(path)} holds something that is no object")
            yield JsonObject(member)

    def text(self, *path: str) -> str | None:
        """Return a text as it is; None for an empty one."""
        found = self.get(*path)
        if isinstance(found, list) and all(isinstance(member, str) for member in found):
            found = ",".join(found)
        if not found:
            return None
        if isinstance(found, dict | list):
            raise DataError(f"{_name(path)} is no text")
        return str(found)

    def word(self, *path: str) -> str | None:
        """Return a text; None where Slurm writes that there is nothing, such as ``(null)``."""
        found = self.text(*path)
        return None if found in ABSENT else found

    def texts(self, *path: str) -> tuple[str, ...]:
        """Return the texts of a list; those that are empty are left out."""
        found = self.get(*path)
        return (
            tuple(member for member in found if isinstance(member, str) and member)
            if isinstance(found, list)
            else ()
        )

    def words(self, *path: str) -> tuple[str, ...]:
        """Return a list of texts, or the pieces of one text between its commas."""
        found = self.text(*path)
        return tuple(found.split(",")) if found else ()

    def amount(self, *path: str) -> float | None:
        """Return a number in either dialect; infinite where Slurm says so."""
        found = self.get(*path)
        if isinstance(found, dict):
            if found.get("infinite") is True:
                return math.inf
            if found.get("set") is not True:
                return None
            found = found.get("number")
        if found is None or isinstance(found, bool):
            return None
        if not isinstance(found, int | float):
            raise DataError(f"{_name(path)} is no number")
        if found in NO_VALUE or found == _NO_VALUE:
            return None
        return math.inf if found in UNLIMITED or found == _UNLIMITED else found

    def whole(self, *path: str) -> int | None:
        """Return a whole number; None also for one without bound."""
        found = self.amount(*path)
        if found is None or not math.isfinite(found):
            return None
        if found != int(found):
            raise DataError(f"{_name(path)} is no whole number")
        return int(found)

    def number(self, *path: str) -> int | None:
        """Return a whole number that is no 0, as that stands for none: of an array, for one."""
        return self.whole(*path) or None

    def minutes(self, *path: str) -> float | None:
        """Return the seconds of a number of minutes."""
        found = self.amount(*path)
        return None if found is None else found * 60

    def megabytes(self, *path: str) -> int | None:
        """Return the bytes of a number of MiB."""
        found = self.whole(*path)
        return None if found is None else found * 2**20

    def time(self, *path: str) -> int | None:
        """Return nanoseconds since the epoch; None for 0."""
        found = self.whole(*path)
        if found is not None and not 0 <= found < MAX_TIME:
            raise DataError(f"{_name(path)} is no time: {found}")
        return found * SECOND if found else None

    def seconds(self, *path: str) -> float | None:
        """Return the seconds of ``{"seconds": …, "microseconds": …}``."""
        whole, rest = self.whole(*path, "seconds"), self.whole(*path, "microseconds")
        if whole is None:
            return None
        return whole + rest / 10**6 if rest else whole

    def flag(self, *path: str) -> bool | None:
        """Return true or false."""
        found = self.get(*path)
        return found if isinstance(found, bool) else None

    def states(self, *path: str) -> tuple[str, ...]:
        """Return states in capitals, from a word or a list of words."""
        return tuple(word.upper() for word in self.words(*path))

    def exit_code(self, *path: str) -> tuple[int | None, int | None]:
        """Return code and signal, from either dialect or from the raw status of wait(2)."""
        found = self.get(*path)
        if isinstance(found, dict):
            inner = JsonObject(found)
            signal = inner.whole("signal", "id")
            if signal is None:
                signal = inner.whole("signal", "signal_id")
            code = inner.whole("return_code")
            if code is None and signal is None:
                return None, None
            return code or 0, signal or 0
        status = self.whole(*path)
        return (None, None) if status is None else wait_status(status)


_NO_VALUE, _UNLIMITED = -2, -1
"""Marks that 22.05 writes of numbers with a sign."""


def _name(path: tuple[str, ...]) -> str:
    return ".".join(path)
