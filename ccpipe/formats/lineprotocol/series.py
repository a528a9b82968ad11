"""Series: measurement and tags, decoded once for each new one and then known by a number."""

import re
from collections.abc import Mapping
from typing import NamedTuple

from ccpipe.errors import EncodeError
from ccpipe.formats.lineprotocol.grammar import CC, KEY_ESCAPE, MEASUREMENT_ESCAPE, Grammar

MAX_SERIES = 1_000_000
"""How many series a table holds before its oldest ones are let go."""


class Series(NamedTuple):
    """What all lines of one series share."""

    name: str
    tags: dict[str, str]
    """Sorted by key; shared, so never changed."""
    key: bytes
    """Measurement and tags as they are written canonically: sorted and escaped."""


class SeriesTable:
    """Numbers for series and fields that live across payloads.

    A node says the same few hundred series every ten seconds, so the bytes before the first
    unescaped space are looked up as they stand; two spellings of one series get one number.

    Job and process ids in tags make a table grow without end. Hence generations: at `cap` keys
    ``current()`` starts a fresh table that takes a series over when it is seen again, and what
    two generations have not seen is forgotten. ``Lines`` keep the table that they were decoded
    with, so their numbers stay true.
    """

    __slots__ = ("_older", "cap", "codes", "field_codes", "fields", "grammar", "series")

    def __init__(
        self,
        grammar: Grammar = CC,
        cap: int = MAX_SERIES,
        older: Mapping[bytes, Series] | None = None,
    ) -> None:
        """Start empty; `older` are the series of the generation before, by their raw bytes."""
        self.grammar = grammar
        self.cap = cap
        self.codes: dict[bytes, int] = {}
        self.series: list[Series] = []
        self.field_codes: dict[bytes, int] = {}
        self.fields: list[str] = []
        self._older = older or {}

    def __len__(self) -> int:
        return len(self.series)

    def current(self) -> "SeriesTable":
        """Return the table for the next payload: this one, or its successor when it is full."""
        if len(self.codes) < self.cap and len(self.field_codes) < self.cap:
            return self
        older = {raw: self.series[code] for raw, code in self.codes.items()}
        return SeriesTable(self.grammar, self.cap, older)

    def add(self, raw: bytes) -> int:
        """Number the series that the grammatical bytes `raw` name, decoding a new one.

        Raises
        ------
        UnicodeDecodeError
            where the bytes are not UTF-8.

        """
        code = self.code_of(self._older.get(raw) or read_series(raw, self.grammar))
        self.codes[raw] = code
        return code

    def code_of(self, series: Series) -> int:
        """Number a series, whatever its bytes looked like."""
        code = self.codes.get(series.key)
        if code is None:
            code = len(self.series)
            self.codes[series.key] = code
            self.series.append(series)
        return code

    def add_field(self, raw: bytes) -> int:
        """Number a field key; raises UnicodeDecodeError where its bytes are not UTF-8."""
        return self.field_code_of(KEY_ESCAPE.sub(rb"\1", raw).decode(), raw)

    def field_code_of(self, name: str, raw: bytes | None = None) -> int:
        """Number a field by its name; `raw` is a spelling of it to remember."""
        canonical = escape_key(name).encode()
        code = self.field_codes.get(canonical)
        if code is None:
            code = len(self.fields)
            self.field_codes[canonical] = code
            self.fields.append(name)
        if raw is not None:
            self.field_codes[raw] = code
        return code


def read_series(raw: bytes, grammar: Grammar) -> Series:
    """Decode measurement and tags; of a tag that stands twice the last one counts, as in Go."""
    if b"\\" not in raw:
        name, *pairs = raw.decode().split(",")
        tags = dict(sorted(pair.split("=", 1) for pair in pairs))
    else:
        raw.decode()  # the whole key must be UTF-8: report the offset in it, not in a part
        head = grammar.measurement.match(raw)
        assert head is not None
        name = MEASUREMENT_ESCAPE.sub(rb"\1", head[0]).decode()
        tags = dict(
            sorted(
                (KEY_ESCAPE.sub(rb"\1", key).decode(), KEY_ESCAPE.sub(rb"\1", value).decode())
                for key, value in grammar.pair.findall(raw, head.end())
            )
        )
    return Series(name, tags, _join(name, tags))


def write_series(name: str, tags: Mapping[str, str]) -> bytes:
    """Write measurement and tags canonically: sorted and escaped, tags without value left out.

    Raises
    ------
    EncodeError
        where a name is empty or holds what no escape can carry: control characters, or a
        backslash at its end.

    """
    kept = {key: tags[key] for key in sorted(tags) if tags[key]}
    for text in (name, *kept, *kept.values()):
        check_name(text)
    if name[0] == "#":
        raise EncodeError(f"{name!r:.80} would be read as a comment")
    return _join(name, kept)


def check_name(text: str) -> None:
    """Refuse what cannot stand outside quotes; raises EncodeError."""
    if not text or text[-1] == "\\" or _UNWRITABLE.search(text):
        raise EncodeError(f"{text!r:.80} cannot be a name or a tag in line protocol")


def escape_key(text: str) -> str:
    """Escape a tag key, tag value or field key."""
    return _KEY_SPECIAL.sub(r"\\\g<0>", text)


_KEY_SPECIAL = re.compile(r"[,= ]")
_MEASUREMENT_SPECIAL = re.compile(r"[, ]")
_UNWRITABLE = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")


def _join(name: str, sorted_tags: Mapping[str, str]) -> bytes:
    pairs = "".join(f",{escape_key(k)}={escape_key(v)}" for k, v in sorted_tags.items())
    return (_MEASUREMENT_SPECIAL.sub(r"\\\g<0>", name) + pairs).encode()
