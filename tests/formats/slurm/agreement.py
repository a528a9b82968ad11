"""Which fields of records that speak of the same thing differ."""

from collections.abc import Callable, Hashable, Iterable
from typing import TypeVar

import msgspec

Thing = TypeVar("Thing", bound=msgspec.Struct)


def differences(
    one: Iterable[Thing], other: Iterable[Thing], key: Callable[[Thing], Hashable]
) -> dict[str, list[tuple[Hashable, object, object]]]:
    first, second = {key(thing): thing for thing in one}, {key(thing): thing for thing in other}
    assert first.keys() == second.keys()
    found: dict[str, list[tuple[Hashable, object, object]]] = {}
    for name, thing in first.items():
        mine, theirs = msgspec.structs.asdict(thing), msgspec.structs.asdict(second[name])
        for field, value in mine.items():
            if value != theirs[field]:
                found.setdefault(field, []).append((name, value, theirs[field]))
    return found
