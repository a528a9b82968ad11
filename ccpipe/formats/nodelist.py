"""Node lists with bracketed ranges, as Slurm and Sonar write them: ``c[1-3,5]-[2-4].fox``.

::

    nodelist  = element *("," element)
    element   = 1*(literal / range)
    literal   = 1*(letter / digit / "." / "_" / "-" / any character beyond ASCII)
    range     = "[" number ["-" number] *("," number ["-" number]) "]"

Numbers are zero-padded to the width of the first one of their range: ``n[08-10]`` is n08, n09,
n10. The first number must not exceed the second, and no number may be repeated. The leftmost range
varies slowest.

Source: Sonar JSON format output specification, *Type: NodeRange*; the grammar is
from Sonar's ``src/nodelist.rs``.
"""

import itertools
import math
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ccpipe.errors import DataError

LIMIT = 100_000

_LITERAL = re.compile(r"[A-Za-z0-9._\-\u0080-\U0010ffff]+")
_NUMBERS = re.compile(r"(\d+)(?:-(\d+))?", re.ASCII)
_MAX_DIGITS = 18
_RUN = re.compile(rf"((?<!\d)\d{{1,{_MAX_DIGITS}}}(?!\d))", re.ASCII)


class NumberRange(NamedTuple):
    """Numbers from `first` to `last`, written at least `width` digits wide."""

    first: int
    last: int
    width: int

    def names(self) -> Iterator[str]:
        return (str(number).zfill(self.width) for number in range(self.first, self.last + 1))

    def size(self) -> int:
        return self.last - self.first + 1

    def __str__(self) -> str:
        ends = [self.first] if self.first == self.last else [self.first, self.last]
        return "-".join(str(number).zfill(self.width) for number in ends)


Fragment = str | tuple[NumberRange, ...]
"""A literal, or the spans of a range."""

Element = tuple[Fragment, ...]


def split(text: str) -> list[str]:
    """Split a list at the commas outside of its brackets, without changing its elements.

    Raises DataError with the position if the text is not a node list.
    """
    return [piece for piece, _ in _elements(text)]


def parse(text: str) -> list[Element]:
    return [element for _, element in _elements(text)]


def expand(text: str, *, limit: int = LIMIT) -> list[str]:
    """Return all names of a list, in the order of the specification.

    Raises DataError if the text is not a node list, or has more than `limit` names.
    """
    elements = parse(text)
    total = sum(map(_size, elements))
    if total > limit:
        raise DataError(f"{text!r:.60} has {total} names, more than {limit}")
    return ["".join(name) for element in elements for name in itertools.product(*_parts(element))]


def count(text: str) -> int:
    return sum(map(_size, parse(text)))


def compress(names: Iterable[str]) -> list[str]:
    """Return names as list elements, merged along one run of digits at a time.

    ``expand`` of the result, joined by commas, returns each name once. Names that differ in the
    width of their numbers (``n1``, ``n01``) never share an element, so that no number repeats.
    Raises DataError for a name that the grammar does not allow.
    """
    shapes: dict[tuple[str, ...], list[tuple[str, ...]]] = {}
    for name in sorted(set(names)):
        if not _LITERAL.fullmatch(name):
            raise DataError(f"{name!r:.60} is not a valid node name")
        pieces = _RUN.split(name)
        shapes.setdefault(tuple(pieces[::2]), []).append(tuple(pieces[1::2]))
    return sorted(
        (element for literals, rows in shapes.items() for element in _compressed(literals, rows)),
        key=_natural,
    )


def _elements(text: str) -> Iterator[tuple[str, Element]]:
    if not text:
        raise DataError("a node list must not be empty")
    start = position = 0
    fragments: list[Fragment] = []
    while True:
        if text.startswith("[", position):
            spans, position = _range(text, position)
            fragments.append(spans)
        elif found := _LITERAL.match(text, position):
            fragments.append(found[0])
            position = found.end()
        else:
            raise _broken(text, position, "expected a name or a range")
        if position == len(text) or text[position] == ",":
            yield text[start:position], tuple(fragments)
            if position == len(text):
                return
            start = position = position + 1
            fragments = []


def _range(text: str, position: int) -> tuple[tuple[NumberRange, ...], int]:
    """Parse the range that begins at `position`; return its spans and its end."""
    spans: list[NumberRange] = []
    while True:
        position += 1  # past "[" or ","
        found = _NUMBERS.match(text, position)
        if found is None:
            raise _broken(text, position, "expected a number")
        spans.append(_span(text, found))
        position = found.end()
        follows = text[position : position + 1]
        if follows == "]":
            break
        if follows != ",":
            raise _broken(text, position, "expected ',' or ']'")
    ordered = sorted(spans)
    for before, after in itertools.pairwise(ordered):
        if after.first <= before.last:
            raise _broken(text, position, f"number {after.first} is repeated in the range")
    return tuple(spans), position + 1


def _span(text: str, found: re.Match[str]) -> NumberRange:
    first, last = found[1], found[2] or found[1]
    if max(len(first), len(last)) > _MAX_DIGITS:
        raise _broken(text, found.start(), f"a number has more than {_MAX_DIGITS} digits")
    if int(first) > int(last):
        raise _broken(text, found.start(), f"{first} is greater than {last}")
    return NumberRange(int(first), int(last), len(first))


def _broken(text: str, position: int, reason: str) -> DataError:
    return DataError(f"{text!r:.60}: character {position + 1}: {reason}")


def _size(element: Element) -> int:
    return math.prod(
        sum(span.size() for span in fragment)
        for fragment in element
        if not isinstance(fragment, str)
    )


def _parts(element: Element) -> Iterator[list[str]]:
    for fragment in element:
        if isinstance(fragment, str):
            yield [fragment]
        else:
            yield [name for span in fragment for name in span.names()]


def _compressed(literals: tuple[str, ...], rows: list[tuple[str, ...]]) -> Iterator[str]:
    """Yield names that share their literals, with ranges for their numbers.

    Each name is a box of width one in every dimension; along one dimension after the other, boxes
    that differ only there are merged. Boxes never overlap, so each name occurs once.
    """
    padded = [{len(t) for t in column if _is_padded(t)} for column in zip(*rows, strict=True)]
    boxes: set[_Box] = {
        tuple((len(t) if len(t) in widths else 1, frozenset((int(t),)))
              for t, widths in zip(row, padded, strict=True))
        for row in rows
    }  # fmt: skip
    for axis in reversed(range(len(padded))):
        grown: dict[tuple[_Box, int, _Box], set[int]] = {}
        for box in boxes:
            width, numbers = box[axis]
            grown.setdefault((box[:axis], width, box[axis + 1 :]), set()).update(numbers)
        boxes = {
            (*before, (width, frozenset(numbers)), *after)
            for (before, width, after), numbers in grown.items()
        }
    for box in boxes:
        ranges = [_format_range(width, numbers) for width, numbers in box]
        yield "".join(map("".join, itertools.zip_longest(literals, ranges, fillvalue="")))


_Box = tuple[tuple[int, frozenset[int]], ...]
"""Width and numbers of each run of digits."""


def _is_padded(digits: str) -> bool:
    return len(digits) > 1 and digits[0] == "0"


def _format_range(width: int, numbers: frozenset[int]) -> str:
    spans: list[NumberRange] = []
    for number in sorted(numbers):
        if spans and number == spans[-1].last + 1:
            spans[-1] = spans[-1]._replace(last=number)
        else:
            spans.append(NumberRange(number, number, width))
    text = ",".join(map(str, spans))
    return text if len(numbers) == 1 else f"[{text}]"


def _natural(element: str) -> list[tuple[str, int]]:
    """Sort numbers by value: c2 before c10."""
    pieces = _RUN.split(element)
    return [
        (literal, int(digits) if digits else -1)
        for literal, digits in itertools.zip_longest(pieces[::2], pieces[1::2], fillvalue="")
    ]
