"""Diagnosis of lines that break the grammar, and the repairs of ``lenient``; imported if needed.

Each repaired mistake is written by a known program:

- ``event={…}`` and ``control=word`` without quotes: the examples of the ClusterCockpit
  specification itself (*Events*, *Controls*);
- ``name, field=…``, a comma but no tag: cc-lib's ``ToLineProtocol`` for a message without tags;
- ``partition=``, a tag without value: cc-slurm-adapter for a job without partition.
"""

import re

from ccpipe.formats.lineprotocol import grammar as g
from ccpipe.formats.lineprotocol.grammar import CC, Grammar, Rule


def diagnose(payload: bytes, start: int, limit: int, grammar: Grammar) -> tuple[Rule, int]:
    """Return the first rule that the line at `start` breaks, and the offset.

    Only called if ``grammar.line`` did not match between `start` and `limit`.
    """
    found = grammar.measurement.match(payload, start, limit)
    if found is None:
        return Rule.MEASUREMENT, start
    position = found.end()
    while payload[position : position + 1] == b",":
        position += 1
        key = grammar.key.match(payload, position, limit)
        if key is None:
            return Rule.TAG_KEY, position
        if payload[key.end() : key.end() + 1] != b"=":
            return Rule.TAG_EQUALS, key.end()
        value = grammar.key.match(payload, key.end() + 1, limit)
        if value is None:
            return Rule.TAG_VALUE, key.end() + 1
        position = value.end()
    if payload[position : position + 1] != b" ":
        return Rule.NO_FIELD, position
    return _diagnose_fields(payload, _after_spaces(payload, position), limit, grammar)


def _diagnose_fields(
    payload: bytes, position: int, limit: int, grammar: Grammar
) -> tuple[Rule, int]:
    while True:
        key = grammar.key.match(payload, position, limit)
        if key is None:
            return Rule.FIELD_KEY, position
        if payload[key.end() : key.end() + 1] != b"=":
            return Rule.FIELD_EQUALS, key.end()
        position = key.end() + 1
        value = grammar.string.match(payload, position, limit) or grammar.token.match(
            payload, position, limit
        )
        if value is None:
            quoted = payload[position : position + 1] == b'"'
            return Rule.QUOTE if quoted else Rule.VALUE, position
        position = value.end()
        if payload[position : position + 1] != b",":
            return _diagnose_time(payload, position)
        position += 1


def _diagnose_time(payload: bytes, position: int) -> tuple[Rule, int]:
    if payload[position : position + 1] != b" ":
        return Rule.AFTER_VALUE, position
    position = _after_spaces(payload, position)
    stamp = g.STAMP.match(payload, position)
    if stamp is None:
        return Rule.TIME, position
    if payload[stamp.end() : stamp.end() + 1] != b" ":
        return Rule.TIME, position
    return Rule.AFTER_TIME, _after_spaces(payload, stamp.end())


def _after_spaces(payload: bytes, position: int) -> int:
    spaces = g.SPACES.match(payload, position)
    assert spaces is not None
    return spaces.end()


_HEAD = re.compile(
    rb"(?P<name>" + CC.measurement.pattern + rb")"
    rb"(?P<tags>(?:,(?:" + CC.key.pattern + rb")=(?:" + CC.key.pattern + rb")?+)*+),?+ ++"
)
_TAG = re.compile(rb",(?:" + CC.key.pattern + rb")=(" + CC.key.pattern + rb")?+")
_UNQUOTED = re.compile(
    rb"(?P<field>event|control)=(?P<text>\{.*\}|[^\s\",={}]++)(?P<time> ++-?[0-9]++)?+ *+\Z"
)


def repair(line: bytes) -> bytes | None:
    """Return `line` repaired, or None if it has no known mistake."""
    head = _HEAD.match(line)
    if head is None:
        return None
    rest = line[head.end() :]
    unquoted = _UNQUOTED.match(rest)
    if unquoted is not None:
        text = unquoted["text"].replace(b"\\", rb"\\").replace(b'"', rb"\"")
        rest = b'%b="%b"%b' % (unquoted["field"], text, unquoted["time"] or b"")
    tags = _TAG.sub(lambda tag: tag[0] if tag[1] else b"", head["tags"])
    return head["name"] + tags + b" " + rest
