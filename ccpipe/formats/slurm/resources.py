"""What was requested, allocated or used, by name: TRES and GRES, and lists of indices.

>>> tres("cpu=4,mem=2G,gres/gpu:a100=2")
{'cpu': 4, 'mem': 2147483648, 'gres/gpu:a100': 2}
>>> tres("cpu=00:00:03,fs/disk=146462")
{'cpu': 3, 'fs/disk': 146462}
>>> gres("gpu:a100:2(IDX:0-1)")
[Gres(name='gpu', type='a100', count=2, indices=(0, 1))]

Source: ``slurmdb_make_tres_string_from_simple`` and ``gres_sock_str`` of Slurm; slurm.conf(5),
*AccountingStorageTRES*.
"""

import itertools
import re

import msgspec

from ccpipe.errors import DataError
from ccpipe.formats.slurm.values import ABSENT, duration, volume

MAX_INDICES = 100_000
"""Indices that one list may hold."""

NO_VALUE = {2**32 - 2, 2**64 - 2}
"""Slurm's marks for a number that was never set."""
UNLIMITED = {2**32 - 1, 2**64 - 1}
"""Slurm's marks for a number without bound."""

_RANGE = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9})(?::([0-9]{1,9}))?)?")
_PARENTHESIS = re.compile(r"(.*?)\(([^()]*)\)", re.DOTALL)


class Gres(msgspec.Struct, frozen=True, gc=False):
    """One kind of generic resource, such as GPUs of a type."""

    name: str
    type: str | None
    count: int
    indices: tuple[int, ...]
    """Which of the node's devices; empty where Slurm does not print them."""


def tres(text: str | None) -> dict[str, float]:
    """Read ``name=amount`` pairs: bytes, joules, counts; CPU time of usage columns in seconds.

    The names are Slurm's. A typed resource also stands without its type (``gres/gpu``), so that
    they are not to be added up. Amounts that were never set are left out.

    Raises
    ------
    DataError
        for anything else.

    """
    return {
        name: amount
        for name, cell in tres_labels(text).items()
        if (amount := _amount(name, cell)) is not None
    }


def tres_labels(text: str | None) -> dict[str, str]:
    """Read ``name=text`` pairs, such as the nodes of ``TRESUsageInMaxNode``."""
    if text is None or text in ABSENT:
        return {}
    pairs = [pair.partition("=") for pair in text.split(",")]
    for name, sign, _ in pairs:
        if not (name and sign):
            raise DataError(f"not a list of resources: {text!r:.60} (expected e.g. cpu=4,mem=2G)")
    return {name: value for name, _, value in pairs}


def _amount(name: str, cell: str) -> float | None:
    try:
        amount = duration(cell) if ":" in cell else volume(cell)
    except DataError as error:
        raise DataError(f"{name}: {error}") from None
    return None if amount in NO_VALUE or amount in UNLIMITED else amount


def gpu_count(text: str | None) -> int:
    """Count the GPUs of a TRES text; raises DataError as ``tres`` does."""
    amounts = tres(text)
    typed = sum(amount for name, amount in amounts.items() if name.startswith("gres/gpu:"))
    return int(amounts.get("gres/gpu", typed))


def gres(text: str | None) -> list[Gres]:
    """Read ``gpu:a100:2(IDX:0-1),mps:100``, with or without ``gres:`` or ``gres/`` in front.

    Raises
    ------
    DataError
        if it is no such list.

    """
    if text is None or text in ABSENT:
        return []
    return [_gres(element) for element in _split(text)]


def _split(text: str) -> list[str]:
    """Split at the commas outside of parentheses."""
    elements, depth, start = [], 0, 0
    for position, character in enumerate(text):
        if character == "(":
            depth += 1
        elif character == ")":
            depth -= 1
        elif character == "," and depth == 0:
            elements.append(text[start:position])
            start = position + 1
    return [*elements, text[start:]]


def _gres(element: str) -> Gres:
    plain, inside = element, ""
    if found := _PARENTHESIS.fullmatch(element):
        plain, inside = found.groups()
    parts = plain.removeprefix("gres:").removeprefix("gres/").replace("=", ":").split(":")
    name = parts.pop(0)
    amount = 1
    if parts and parts[-1][:1].isdigit():
        amount = volume(parts.pop()) or 0
    if not name or len(parts) > 1:
        raise DataError(f"not a generic resource: {element!r:.60} (expected e.g. gpu:a100:2)")
    indices = index_list(inside.removeprefix("IDX:")) if inside.startswith("IDX:") else ()
    return Gres(name, parts[0] if parts else None, amount, indices)


def index_list(text: str | None) -> tuple[int, ...]:
    """Read ``0-3,8`` into its numbers; empty if there are none.

    Raises
    ------
    DataError
        if it is no list of numbers, or holds more than ``MAX_INDICES``.

    """
    if text is None or text in ABSENT:
        return ()
    spans = [_range(element) for element in text.split(",")]
    if sum(map(len, spans)) > MAX_INDICES:
        raise DataError(f"{text!r:.60} holds more than {MAX_INDICES} numbers")
    return tuple(itertools.chain.from_iterable(spans))


def _range(element: str) -> range:
    """Read ``3``, ``5-6`` or ``0-14:2``; raises DataError."""
    found = _RANGE.fullmatch(element)
    first, last, step = map(int, found.groups(0)) if found else (0, 0, 0)
    if found is None or (found[2] and last < first) or (found[3] and not step):
        raise DataError(f"not a range of numbers: {element!r:.40} (expected e.g. 3, 0-9, 0-14:2)")
    return range(first, (last if found[2] else first) + 1, step or 1)
