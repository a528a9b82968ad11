"""The effect of each rule on one sample: ``ccpipe publish --once --explain``."""

import sys
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import Any, Literal

import msgspec

from ccpipe.cli.console.message_table import MessageTable
from ccpipe.cli.console.output import encoder, print_json
from ccpipe.formats.lineprotocol import Lines, RejectedLine, decode
from ccpipe.message import Message
from ccpipe.pipeline import HoldingTranslator, Translator
from ccpipe.terminal import printable

_SHOWN = 8
"""Maximum number of changes listed in text output; JSON has all."""


class RecordChange(msgspec.Struct, frozen=True):
    """A record before and after, as series; with its value if that changed."""

    before: str
    after: str


class Explained(msgspec.Struct, frozen=True, kw_only=True):
    """The effect of one rule on its input, each record shown as its series."""

    rule: int
    use: str
    reached: int
    left: int
    changed: list[RecordChange]
    dropped: list[str]
    added: list[str]
    refused: list[str]
    """Records that it could not translate, with the reason; they become dead letters."""
    doubled: list[str]
    """Series with two values at one time since this rule: stores keep one of them."""


def explain(
    records: Lines,
    translators: Sequence[Translator[Any, Any]],
    names: Sequence[str],
    output: Literal["line", "json", "table"] = "line",
) -> None:
    """Run the records of one sample through translators; print the effect of each, and the result.

    ``line`` prints line protocol with the explanation as comments, ``table`` a table below it,
    ``json`` one object with ``rules`` and ``records``. `names` are those in the configuration.
    """
    rules, left = passed(records, translators, names)
    if output == "json":
        _, encode = encoder("json")
        print_json({"rules": rules, "records": list(map(msgspec.Raw, encode(left).splitlines()))})
        return
    mark = "# " if output == "line" else ""
    for line in _reported(rules) if rules else ["no rules: [[publish.translate]] is empty"]:
        print(mark + printable(line))
    if output == "table":
        print()
        print(MessageTable(sys.stdout).render(left), end="")
    else:
        _, encode = encoder("line")
        print(encode(left).decode(), end="")


def passed(
    records: Lines, translators: Sequence[Translator[Any, Any]], names: Sequence[str]
) -> tuple[list[Explained], Lines]:
    """Feed and flush translators, as at the end of a pipe; return the effects and the result."""
    rules = []
    for number, (translator, name) in enumerate(zip(translators, names, strict=True), 1):
        before = list(records)
        results = [translator.feed(records)]
        if isinstance(translator, HoldingTranslator):
            results.append(translator.flush())
        new = [bad for each in results for bad in each.rejected if bad not in records.rejected]
        refused = [f"{_original(bad)}: {bad.reason}" for bad in new]
        records = Lines.concat(results)
        rules.append(_explained(number, name, before, list(records), refused))
    return rules, records


def _explained(
    number: int, name: str, before: list[Message], after: list[Message], refused: list[str]
) -> Explained:
    changed: list[RecordChange] = []
    dropped: list[str] = []
    added: list[str] = []
    twice_before, twice = _duplicated_series(before), _duplicated_series(after)
    if len(before) == len(after):
        changed = [
            _change(old, new)
            for old, new in zip(before, after, strict=True)
            if _identity(old) != _identity(new)
        ]
    else:
        dropped = list(_difference(before, after))
        added = list(_difference(after, before))
    return Explained(
        rule=number,
        use=name,
        reached=len(before),
        left=len(after),
        changed=changed,
        dropped=dropped,
        added=added,
        refused=refused,
        doubled=sorted(twice - twice_before) if len(twice) > len(twice_before) else [],
    )


def _change(old: Message, new: Message) -> RecordChange:
    if repr(old.value) == repr(new.value):
        return RecordChange(_series(old), _series(new))
    return RecordChange(_record(old), _record(new))


def _difference(messages: Iterable[Message], others: Iterable[Message]) -> Iterator[str]:
    left = Counter(map(_identity, others))
    for message in messages:
        identity = _identity(message)
        if left[identity]:
            left[identity] -= 1
        else:
            yield _series(message)


def _duplicated_series(messages: Iterable[Message]) -> set[str]:
    counts = Counter((_series(message), message.field, message.time) for message in messages)
    return {series for (series, _, _), count in counts.items() if count > 1}


def _identity(message: Message) -> Hashable:
    """Return a key that is equal for equal messages; 1 and 1.0 differ."""
    return _series(message), message.field, message.time, repr(message.value)


def _original(bad: RejectedLine) -> str:
    found = decode(bad.original)
    return _record(found[0]) if len(found) else bad.original.decode(errors="replace")


def _record(message: Message) -> str:
    return f"{_series(message)} {message.value}"


def _series(message: Message) -> str:
    tags = sorted(message.tags.items())
    return ",".join([message.name, *(f"{key}={value}" for key, value in tags)])


def _reported(rules: Iterable[Explained]) -> Iterator[str]:
    for rule in rules:
        changes = [f"{change.before} -> {change.after}" for change in rule.changed]
        parts = {
            "changed": changes,
            "dropped": [f"- {series}" for series in rule.dropped],
            "added": [f"+ {series}" for series in rule.added],
            "refused": [f"! {record}" for record in rule.refused],
            "now twice": [f"! twice: {series}" for series in rule.doubled],
        }
        counts = [f"{len(lines)} {what}" for what, lines in parts.items() if lines]
        summary = ", ".join(counts) or "nothing changed"
        yield f"rule {rule.rule} {rule.use}: {rule.reached} in, {rule.left} out: {summary}"
        for lines in parts.values():
            yield from (f"  {line}" for line in lines[:_SHOWN])
            if len(lines) > _SHOWN:
                yield f"  and {len(lines) - _SHOWN} more"
