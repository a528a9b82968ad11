"""Series: measurement and tags, each decoded once and then identified by a code.

``PerSeries`` evaluates functions of them, once for all rows that share one.
"""

import contextlib
import functools
import re
import threading
import weakref
from array import array
from collections.abc import Callable, Mapping
from operator import lt
from typing import TYPE_CHECKING, Generic, NamedTuple, Protocol, TypeVar
from urllib.parse import quote

from ccpipe.errors import DataError, EncodeError
from ccpipe.formats.lineprotocol.grammar import CC, KEY_ESCAPE, MEASUREMENT_ESCAPE, Grammar
from ccpipe.formats.lineprotocol.kernel import KERNEL
from ccpipe.process.memory_limit import memory_limit

if TYPE_CHECKING:
    from ccpipe.formats.lineprotocol.kernel._kernel import Scanner

MAX_SERIES = 2**26
"""Number of series encodings after which a fresh table replaces a full one."""
MAX_FIELDS = 1_000_000
"""Number of fields after which a fresh table replaces a full one."""
MEMORY_PARTS = 8
"""Divisor of the process's memory limit for the encodings of a table."""
MIN_BYTES = 32 * 2**20
"""Lower bound of that limit, in bytes."""

MEAN_BYTES = 1024
"""Maximum average size of a series encoding; real sites are far below it."""
LONG_BYTES = 64 * 2**20
"""Size allowed in addition to ``MEAN_BYTES`` per series, so that a few long ones do no harm."""


@functools.cache
def max_bytes() -> int:
    """Return the maximum size of a table's encodings, before a fresh table replaces it."""
    return max(MIN_BYTES, memory_limit() // MEMORY_PARTS)


class Series(NamedTuple):
    """Measurement and tags."""

    name: str
    tags: dict[str, str]
    """Sorted by key; shared, so must not be modified."""
    key: bytes
    """Measurement and tags in their canonical encoding: sorted and escaped."""


class DuplicateTag(DataError):  # noqa: N818 - named for the rule
    """A tag occurs twice; `start` is the offset of the second one in the key."""

    def __init__(self, start: int) -> None:
        super().__init__(f"duplicate tag at {start}")
        self.start = start


class Encodings(dict[bytes, int]):
    """The encodings of the series of one table, with their codes; fallback for the kernel.

    A series is stored as its canonical encoding; see ``SeriesTable.series`` for its parts.
    """

    def __init__(self) -> None:
        super().__init__()
        self.bytes = 0
        self._canonical: list[bytes] = []
        self._adding = threading.Lock()

    @property
    def series(self) -> int:
        return len(self._canonical)

    def intern(self, key: bytes) -> int:
        code = self.get(key)
        if code is None:
            with self._adding:
                code = self.setdefault(key, len(self._canonical))
                if code == len(self._canonical):
                    self._canonical.append(key)
                    self.bytes += len(key) + _ENCODING_SIZE
        return code

    def has_room(self, count: int, size: int) -> bool:
        """Return whether there are fewer than `count` encodings in less than `size` bytes."""
        return len(self) < count and self.bytes < size

    def alias(self, raw: bytes, code: int) -> None:
        self[raw] = code
        self.bytes += len(raw) + _ENCODING_SIZE

    def key(self, code: int) -> bytes:
        return self._canonical[code]


_ENCODING_SIZE = 200


class SeriesByNumber(dict[int, Series]):
    """Series by code, decoded on first access."""

    def __init__(self, table: "SeriesTable") -> None:
        super().__init__()
        # A reference cycle would keep a replaced table in memory for long.
        self._table = weakref.proxy(table)
        self._unreadable: dict[int, Series] = {}

    def __missing__(self, code: int) -> Series:
        if code in self._unreadable:
            return self._unreadable[code]
        table = self._table
        series = self[code] = read_series(table.codes.key(code), table.grammar, table.words())
        if len(self) > _MAX_DECODED:
            self.clear()
        return series

    def keep_unreadable(self, code: int, series: Series) -> None:
        """Store a series whose canonical encoding cannot be decoded, as InfluxDB allows."""
        if b"\\" in series.key and read_series(series.key, self._table.grammar) != series:
            self._unreadable[code] = series


_MAX_DECODED = 1 << 16


class SeriesTable:
    """Codes of series and fields, kept across payloads.

    A node sends the same few hundred series every ten seconds, so the bytes before the first
    unescaped space are looked up without decoding; all encodings of a series share one code.

    Because job and process ids in tags add series without limit, ``current()`` returns a fresh
    table, without ended series, once there are `cap` encodings of series or of fields, or they
    take ``max_bytes()``. The maximum size is that plus the additions of one payload. ``Lines`` keep
    the table that they were decoded with, so their codes stay valid.
    """

    __slots__ = (
        "__weakref__",
        "_adding",
        "_words",
        "cap",
        "codes",
        "field_codes",
        "fields",
        "grammar",
        "max_bytes",
        "max_fields",
        "scanner",
        "series",
    )

    def __init__(self, grammar: Grammar = CC, cap: int = MAX_SERIES) -> None:
        """Start empty."""
        self.grammar = grammar
        self.cap = cap
        self.max_bytes = max_bytes()
        self.max_fields = min(cap, MAX_FIELDS)
        self.codes: Encodings = Encodings() if KERNEL is None else KERNEL.Encodings()
        """The codes of series, by their encodings."""
        self.series = SeriesByNumber(self)
        """The series by code; decoded on first access."""
        self.field_codes: dict[bytes, int] = {}
        self.fields: list[str] = []
        self.scanner: Scanner | None = None
        """Data of the compiled kernel, created by the decoder."""
        self._words: dict[str, str] = {}
        self._adding = threading.Lock()

    def __len__(self) -> int:
        return self.codes.series

    def current(self) -> "SeriesTable":
        """Return the table for the next payload: this one, or a fresh one when it is full."""
        limit = min(self.max_bytes, LONG_BYTES + MEAN_BYTES * len(self))
        if self.codes.has_room(self.cap, limit) and len(self.field_codes) < self.max_fields:
            return self
        return SeriesTable(self.grammar, self.cap)

    def add(self, raw: bytes) -> int:
        """Return the code of the series in the grammatical bytes `raw`.

        Raises UnicodeDecodeError if the bytes are not UTF-8, DuplicateTag if a tag occurs twice and
        the grammar forbids that.
        """
        if _is_canonical(raw):
            return self.codes.intern(raw)
        series = read_series(raw, self.grammar, self.words())
        code = self.code_of(series)
        if raw != series.key:
            self.codes.alias(raw, code)
        return code

    def words(self) -> dict[str, str]:
        """Cached names and tags of recent series, so that equal ones share memory."""
        if len(self._words) > _MAX_WORDS:
            self._words.clear()
        return self._words

    def code_of(self, series: Series) -> int:
        code = self.codes.get(series.key)
        if code is None:
            code = self.codes.intern(series.key)
            self.series.keep_unreadable(code, series)
        return code

    def add_field(self, raw: bytes) -> int:
        """Return the code of a field key; raises UnicodeDecodeError if it is not UTF-8."""
        return self.field_code_of(KEY_ESCAPE.sub(rb"\1", raw).decode(), raw)

    def field_code_of(self, name: str, raw: bytes | None = None) -> int:
        """Return the code of a field by name; `raw` is another encoding to add."""
        canonical = escape_key(name).encode()
        code = self.field_codes.get(canonical)
        if code is None:
            with self._adding:
                code = self.field_codes.setdefault(canonical, len(self.fields))
                if code == len(self.fields):
                    self.fields.append(name)
        if raw is not None:
            self.field_codes[raw] = code
        return code


def _is_canonical(raw: bytes) -> bool:
    """Return whether no other grammatical bytes represent the same series."""
    if b"\\" in raw or not raw.isascii():
        return False
    keys = [pair.partition(b"=")[0] for pair in raw.split(b",")[1:]]
    return all(map(lt, keys, keys[1:]))


_MAX_WORDS = 1 << 16


def read_series(raw: bytes, grammar: Grammar, words: dict[str, str] | None = None) -> Series:
    """Decode measurement and tags; the last of duplicate tags wins, as in Go.

    `words` caches names and tags across series, to share memory.
    """
    plain = b"\\" not in raw
    if plain:
        same = ({} if words is None else words).setdefault
        name, *parts = raw.decode().split(",")
        pairs = [(same(k, k), same(v, v)) for k, v in [part.split("=") for part in parts]]
        name = same(name, name)
    else:
        raw.decode()  # the whole key must be UTF-8: report the offset in it, not in a part
        head = grammar.measurement.match(raw)
        assert head is not None
        name = MEASUREMENT_ESCAPE.sub(rb"\1", head[0]).decode()
        pairs = [
            (KEY_ESCAPE.sub(rb"\1", key).decode(), KEY_ESCAPE.sub(rb"\1", value).decode())
            for key, value in grammar.pair.findall(raw, head.end())
        ]
    tags = dict(pairs)
    order = sorted(tags)
    if grammar.tags_once and len(tags) < len(pairs):
        raise DuplicateTag(_second(raw, grammar))
    if order != [key for key, _ in pairs]:
        tags = {key: tags[key] for key in order}
    elif plain:
        return Series(name, tags, raw)  # the common case: canonical
    return Series(name, tags, _join(name, tags, plain))


def _second(raw: bytes, grammar: Grammar) -> int:
    head = grammar.measurement.match(raw)
    assert head is not None
    seen: set[bytes] = set()
    for pair in grammar.pair.finditer(raw, head.end()):
        key = KEY_ESCAPE.sub(rb"\1", pair[1])
        if key in seen:
            return pair.start(1)
        seen.add(key)
    raise AssertionError  # only called if there is one


def write_series(name: str, tags: Mapping[str, str]) -> bytes:
    """Encode measurement and tags canonically: sorted and escaped, without empty tags.

    Raises EncodeError if a name is empty, or cannot be escaped: it has control characters, or a
    trailing backslash.
    """
    return write_measurement(name) + write_tags(tags)


def write_tags(tags: Mapping[str, str]) -> bytes:
    """Encode the tags of a series, which follow its measurement; raises EncodeError."""
    return b"".join([b",%b=%b" % (escape(k), escape(v)) for k, v in sorted(tags.items()) if v])


def check_name(text: str) -> None:
    """Check a name or tag; raises EncodeError."""
    if not text or text[-1] == "\\" or re.search(_UNWRITABLE, text):
        raise EncodeError(f"{text!r:.80} is not a valid name or tag in line protocol")


def valid_tag(text: str) -> str:
    """Return a text as a valid tag value, percent-encoded where necessary."""
    try:
        escape(text)  # which keeps what it has checked
    except EncodeError:
        return quote(text.encode(errors="surrogatepass"))
    return text


def valid_tags(tags: Mapping[str, str]) -> dict[str, str]:
    """Return tags as a series has them: sorted, none empty, percent-encoded where necessary."""
    return {key: valid_tag(value) for key, value in sorted(tags.items()) if value}


def escape(text: str) -> bytes:
    return _escape_cached(text) if len(text) <= _SHORT else _escape(text)


def _escape(text: str) -> bytes:
    check_name(text)
    return escape_key(text).encode()


_SHORT = 64
_escape_cached = functools.lru_cache(maxsize=1 << 14)(_escape)


def write_measurement(name: str) -> bytes:
    """Encode the measurement of a series; raises EncodeError."""
    check_name(name)
    if name[0] == "#":
        raise EncodeError(f"{name!r:.80} would be read as a comment")
    return _MEASUREMENT_SPECIAL.sub(r"\\\g<0>", name).encode()


def escape_key(text: str) -> str:
    return _KEY_SPECIAL.sub(r"\\\g<0>", text)


_KEY_SPECIAL = re.compile(r"[,= ]")
_MEASUREMENT_SPECIAL = re.compile(r"[, ]")
_UNWRITABLE = r"[\x00-\x1f\x7f\ud800-\udfff]"


def _join(name: str, sorted_tags: Mapping[str, str], plain: bool) -> bytes:
    if plain:  # nothing to escape
        return ",".join([name, *map("=".join, sorted_tags.items())]).encode()
    pairs = "".join(f",{escape_key(k)}={escape_key(v)}" for k, v in sorted_tags.items())
    return (_MEASUREMENT_SPECIAL.sub(r"\\\g<0>", name) + pairs).encode()


T = TypeVar("T")

Tags = Mapping[str, str]

MAX_DECISIONS = 1 << 16
"""Maximum number of cached results from earlier batches."""


class CodeColumns(Protocol):
    """The columns of codes of ``Lines``; importing it would be circular."""

    series: "array[int]"
    fields: "array[int]"
    table: SeriesTable

    @property
    def only_field(self) -> int | None:
        """Field code of all rows; None if they differ."""


class PerSeries(Generic[T]):
    """Results by series, cached for later batches.

    The time per batch depends on its rows and series only, not on the number of known series.
    """

    def __init__(self, decide: Callable[[str, Tags], T], maximum: int = MAX_DECISIONS) -> None:
        """Cache up to `maximum` results by name and tags; `decide` must be deterministic."""
        self._decide = decide
        self._maximum = maximum
        self._table: SeriesTable | None = None
        self._by_code: dict[int, T] = {}

    def of_lines(self, lines: CodeColumns) -> Mapping[int, T]:
        """Return the results for at least all series of `lines`, by code."""
        if self._table is not lines.table:  # within a table, codes never change
            self._table, self._by_code = lines.table, {}
        codes = set(lines.series)
        new = codes.difference(self._by_code)
        if new and len(self._by_code) + len(new) > self._maximum:
            self._by_code, new = {}, codes
        for code in new:
            series = lines.table.series[code]
            self._by_code[code] = self._decide(series.name, series.tags)
        return self._by_code

    def of_rows(self, lines: CodeColumns) -> list[T]:
        if self._table is lines.table:
            with contextlib.suppress(KeyError):  # a new series
                return list(map(self._by_code.__getitem__, lines.series))
        return list(map(self.of_lines(lines).__getitem__, lines.series))


def fields_of(lines: CodeColumns, decide: Callable[[str], T]) -> dict[int, T]:
    """Return a result for each field that occurs in `lines`, by code.

    Only the fields of the batch are evaluated: a table may have a million of them.
    """
    only = lines.only_field  # the common case
    codes = {only} if only is not None else set(lines.fields)
    return {code: decide(lines.table.fields[code]) for code in codes}
