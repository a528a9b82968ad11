"""The grammar of one line as regular expressions, and the rules that a line can break.

::

    line   = measurement *("," key "=" key) 1*SP field *("," field) [1*SP [time]] *SP EOL
    field  = key "=" (string / token)

Source: ``influxdata/line-protocol`` v2.2, whose decoder ClusterCockpit uses, and InfluxDB's own
for ``dialect="influx"``. Every quantifier is possessive: matching never backtracks, so it takes
linear time on any input. A backslash only escapes the characters that may be escaped in its place;
otherwise it is an ordinary character.
"""

import enum
import functools
import re


class Rule(enum.StrEnum):
    """The rules that a line can break, worded for its author."""

    MEASUREMENT = "the line does not begin with a measurement"
    TAG_KEY = "expected a tag key after the comma"
    TAG_EQUALS = "expected '=' after the tag key"
    TAG_VALUE = "the tag has no value"
    DUPLICATE_TAG = "duplicate tag"
    KEY_LENGTH = "measurement and tags are longer than 65535 bytes"
    NO_FIELD = "expected a space and a field after measurement and tags"
    FIELD_KEY = "expected a field key"
    FIELD_EQUALS = "expected '=' after the field key"
    VALUE = "the value is neither a number, a boolean nor a string in double quotes"
    QUOTE = "the string does not end: its closing quote is missing"
    AFTER_VALUE = "expected a comma, a space or the end of the line after the value"
    NUMBER = "the value is not a well-formed number"
    RANGE = "the number is out of range"
    BOOLEAN = "the value is not a boolean: t, true, True, TRUE, f, false, False or FALSE"
    TIME = "the timestamp is not an integer"
    TIME_RANGE = "the timestamp is out of range"
    AFTER_TIME = "unexpected text after the timestamp"
    UTF8 = "the bytes are not valid UTF-8"
    UNREAD = "too many bad lines before this one"


MAX_KEY = 65535
"""Maximum length of measurement and tags in bytes (InfluxDB's own limit for a series key)."""


_FLOAT = rb"-?(?:[0-9]++\.?+[0-9]*+|\.[0-9]++)(?:[eE][-+]?[0-9]++)?+"
_STRING = rb'"(?:[^"\\]++|\\.)*+"'
# Whether a token is a number or a boolean is checked when it is read.
_TOKEN = rb"[-.0-9tTfF][^, \r\n]*+"
_VALUE = _STRING + rb"|" + _TOKEN


class Grammar:
    """The expressions of one dialect; `bare` is the class of characters to escape."""

    def __init__(self, bare: bytes, unescape: dict[str, str], *, tags_once: bool) -> None:
        """Define the expressions.

        `unescape` maps each character that may follow a backslash in a string to its meaning;
        with `tags_once` a duplicate tag breaks the line, otherwise the last one wins.
        """
        self._measurement = rb"(?:[^" + bare + rb",\\]++|\\[, ]?)++"
        self._key = rb"(?:[^" + bare + rb",=\\]++|\\[,= ]?)++"
        self.unescape = unescape
        self.tags_once = tags_once

    # Compiled at first use: not at all if the kernel reads all lines.

    @functools.cached_property
    def measurement(self) -> re.Pattern[bytes]:
        return re.compile(self._measurement)

    @functools.cached_property
    def key(self) -> re.Pattern[bytes]:
        return re.compile(self._key)

    @functools.cached_property
    def pair(self) -> re.Pattern[bytes]:
        return re.compile(rb",(" + self._key + rb")=(" + self._key + rb")")

    @functools.cached_property
    def string(self) -> re.Pattern[bytes]:
        return re.compile(_STRING, re.DOTALL)

    @functools.cached_property
    def token(self) -> re.Pattern[bytes]:
        return re.compile(_TOKEN)

    @functools.cached_property
    def field(self) -> re.Pattern[bytes]:
        return re.compile(rb"(" + self._key + rb")=(" + _VALUE + rb")", re.DOTALL)

    @functools.cached_property
    def line(self) -> re.Pattern[bytes]:
        """A line: measurement and tags, fields, timestamp."""
        key = self._key
        field = key + rb"=(?:" + _VALUE + rb")"
        return re.compile(
            rb"(" + self._measurement + rb"(?:," + key + rb"=" + key + rb")*+) ++"
            rb"(" + field + rb"(?:," + field + rb")*+)"
            rb"(?: ++(-?[0-9]++)?+)?+ *+\r?+(?:\n|\Z)",
            re.DOTALL,
        )


CC = Grammar(
    rb"\x00-\x20\x7f", {'"': '"', "\\": "\\", "n": "\n", "r": "\r", "t": "\t"}, tags_once=False
)
"""ClusterCockpit's grammar: ``influxdata/line-protocol`` v2.2."""

INFLUX = Grammar(rb" \n\r", {'"': '"', "\\": "\\"}, tags_once=True)
"""InfluxDB's grammar: ``\\n`` in a string is two characters, names may have control characters,
duplicate tags are invalid (``influxdb/models/points.go``)."""

SKIP = re.compile(rb"(?: *+(?:#[^\n]*+)?+\r?+\n)*+(?: *+(?:#[^\n]*+|\r)\Z)?+ *+")
"""Blank lines, comments, and the spaces before a line."""

STRING_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
KEY_ESCAPE = re.compile(rb"\\([,= ])")
MEASUREMENT_ESCAPE = re.compile(rb"\\([, ])")
SPACES = re.compile(rb" *+")
STAMP = re.compile(rb"-?[0-9]++")

FLOAT = re.compile(_FLOAT)
BARE_POINT = re.compile(rb"-?(?:\.|[0-9]++\.(?![0-9]))")
"""A number that begins or ends with its decimal point."""
INTEGER = re.compile(rb"-?[0-9]++i")
UNSIGNED = re.compile(rb"[0-9]++u")

BOOLEANS = {
    **dict.fromkeys((b"t", b"T", b"true", b"True", b"TRUE"), True),
    **dict.fromkeys((b"f", b"F", b"false", b"False", b"FALSE"), False),
}
