"""Sonar's CSV, its default from 0.7 to 0.13: fields ``name=value``.

Records of one node and time form one sample, adjacent job records one envelope. A bad line is
rejected alone. Before 0.7 fields had no names and the processes of a job could not be
distinguished: such lines are rejected.

Source: Sonar's ``doc/OLD-FORMAT.md`` and ``util/formats/oldfmt`` of 0.16.
"""

import csv
import re
from collections.abc import Callable, Mapping
from typing import Any

from ccpipe.formats.sonar.decoder import decode_tree
from ccpipe.formats.sonar.envelopes import Envelopes, RejectedEnvelope
from ccpipe.formats.sonar.legacy_layouts import upgrade
from ccpipe.formats.sonar.profiles import ReadProfile, numbers_of
from ccpipe.formats.sonar.rules import Problem
from ccpipe.formats.sonar.stream import LARGEST
from ccpipe.formats.sonar.types.envelope import Envelope
from ccpipe.formats.sonar.types.primitives import UINT64_MAX

MAX_RECORDS = 10_000
"""Maximum records of one envelope; further ones begin another."""

_CSV = re.compile(rb'\s*(?:"?[A-Za-z]\w*%?=|\d{4}-\d\d-\d\dT)')


def is_csv(start: bytes) -> bool:
    return _CSV.match(start) is not None


class CsvDecoder:
    """Decodes a CSV stream that arrives in blocks of any size, in bounded memory."""

    def __init__(self, *, strict: bool = False, profile: ReadProfile = "auto") -> None:
        self.strict = strict
        self.profile = profile
        self._rest = b""
        self._offset = self._line = 0
        self._key: tuple[str, ...] = ()
        """Common key of the current records."""
        self._records: list[dict[str, Any]] = []
        self._originals: list[bytes] = []
        self._jobs: set[str] = set()
        self._start = (0, 0)  # line and offset of the first of them
        self._found: list[Envelope] = []
        self._rejected: list[RejectedEnvelope] = []

    def feed(self, block: bytes) -> Envelopes:
        *lines, self._rest = (self._rest + block).split(b"\n")
        for line in lines:
            self._take(line, ended=True)
        if len(self._rest) > LARGEST:
            self._take(self._rest, ended=False)
            self._rest = b""
        return self._completed()

    def finish(self) -> Envelopes:
        if self._rest:
            self._take(self._rest, ended=False)
        self._rest = b""
        self._close()
        return self._completed()

    def _completed(self) -> Envelopes:
        complete = Envelopes(self._found, rejected=self._rejected)
        self._found, self._rejected = [], []
        return complete

    def _take(self, line: bytes, *, ended: bool) -> None:
        place = self._line + 1, self._offset
        self._line += ended
        self._offset += len(line) + ended
        if not line.strip():
            return
        try:
            record = _read(line)
            key = _key(record)
        except ValueError as error:
            problem = Problem("$", str(error))
            self._rejected.append(
                RejectedEnvelope(*place, (problem,), line.rstrip(b"\r"), place[1])
            )
            return
        job = record.get("JobIDRaw", "")
        if key != self._key or job in self._jobs or len(self._records) >= MAX_RECORDS:
            self._close()
            self._key, self._start = key, place
        self._records.append(record)
        self._originals.append(line)
        if job:
            self._jobs.add(job)  # a repeated job begins the report of another time

    def _close(self) -> None:
        if not self._records:
            return
        records, self._records = self._records, []
        originals, self._originals = self._originals, []
        self._jobs.clear()
        numbers = numbers_of("sonar", self._key[1], self.profile)
        tree = upgrade(_tree(self._key, records), numbers)
        found = decode_tree(tree, strict=self.strict, profile=self.profile)
        if isinstance(found, Envelope):
            self._found.append(found)
        else:
            line, offset = self._start
            original = b"\n".join(originals)
            self._rejected.append(RejectedEnvelope(line, offset, tuple(found), original, offset))


def _read(line: bytes) -> dict[str, Any]:
    try:
        fields = next(csv.reader([line.decode().rstrip("\r")], strict=True))
    except UnicodeDecodeError:
        raise ValueError("the bytes are not valid UTF-8") from None
    except csv.Error as error:
        raise ValueError(f"not CSV: {error}") from None
    if re.match(r"\d{4}-", fields[0]):
        raise ValueError("fields without names (Sonar before 0.7) do not identify processes")
    record: dict[str, Any] = {}
    for field in fields:
        name, equals, text = field.partition("=")
        if not equals:
            raise ValueError(f"expected name=value, got {field!r:.60}")
        if name in record:
            raise ValueError(f"duplicate field {name!r:.60}")
        record[name] = _value(name, text)
    return record


def _key(record: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the common key of the records of one envelope; raises ValueError."""
    version = record.get("v", "")
    if "error" in record:
        return "error", version, record["error"], record.get("timestamp", "")
    if "JobID" in record:
        return "job", version
    for name in ("time", "host", "cmd"):
        if not record.get(name):
            raise ValueError(f"{name} is missing")
    return "sample", version, record["time"], record["host"]


_SHARED = {"v", "time", "host", "load", "gpuinfo", "cores", "memtotalkib"}
"""Fields of the node, which any record of a sample may have."""


def _tree(key: tuple[str, ...], records: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the records as Sonar's JSON of the same age."""
    if key[0] == "error":
        return records[0]
    if key[0] == "job":
        jobs = [{name: text for name, text in job.items() if name != "v"} for job in records]
        return {"v": key[1], "jobs": jobs}
    tree: dict[str, Any] = {"v": key[1]}
    for record in records:
        tree |= {name: record.pop(name) for name in _SHARED & record.keys()}
    return tree | {"samples": records}


def _integer(text: str) -> int:
    if not re.fullmatch("[0-9]{1,20}", text) or int(text) > UINT64_MAX:
        raise ValueError(f"expected an integer of 64 bits, got {text!r:.60}")
    return int(text)


def _float(text: str) -> float:
    if not re.fullmatch(r"[0-9]{1,30}(?:\.[0-9]{0,30})?", text):
        raise ValueError(f"expected a number, got {text!r:.60}")
    return float(text)


_INITIAL = "(){}[]<>+-abcdefghijklmnopqrstuvwxyz!@#$%^&*_"
_SUBSEQUENT = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ~|';:.?/`"
_DIGITS = {digit: value for digits in (_INITIAL, _SUBSEQUENT) for value, digit in enumerate(digits)}
_BASE = len(_INITIAL)
_NUMBER = re.compile(f"[{re.escape(_INITIAL)}][{re.escape(_SUBSEQUENT)}]{{0,11}}")


def _load(text: str) -> list[int]:
    """Read seconds of each CPU: a base, then differences, in base 45, lowest digit first."""
    numbers = _NUMBER.findall(text)
    if not numbers or sum(map(len, numbers)) != len(text):
        raise ValueError(f"expected numbers in base 45, got {text!r:.60}")
    base, *more = [
        sum(_DIGITS[digit] * _BASE**place for place, digit in enumerate(number))
        for number in numbers
    ]
    return [base + number for number in more]


def _gpus(text: str) -> list[dict[str, Any]]:
    """Read ``fan%=27|28,perf=P8|P8``: each field with its values for all GPUs."""
    gpus: list[dict[str, Any]] = []
    for field in text.split(","):
        name, _, values = field.partition("=")
        for index, value in enumerate(values.split("|")):
            if index == len(gpus):
                gpus.append({})
            if value:
                gpus[index][name] = value if name in ("perf", "mode") else _integer(value)
    return gpus


_VALUES: dict[str, Callable[[str], Any]] = {
    "load": _load,
    "gpuinfo": _gpus,
    **dict.fromkeys(("cpu%", "gpu%", "gpumem%"), _float),
    **dict.fromkeys(
        (
            "cores", "memtotalkib", "job", "epoch", "pid", "ppid", "cpukib", "rssanonkib", "gpukib",
            "cputime_sec", "gpufail", "rolledup",
        ),
        _integer,
    ),
}  # fmt: skip


def _value(name: str, text: str) -> Any:
    try:
        return _VALUES[name](text) if name in _VALUES else text
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None
