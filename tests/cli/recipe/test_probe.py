"""Testing the connections of a recipe's parts."""

import pytest

from ccpipe.cli.recipe.probe import Fault, unreachable
from ccpipe.errors import DeniedError


class Refuses:
    """A part with a question of its own; entering it would do harm."""

    async def __aenter__(self) -> None:
        pytest.fail("entered, though it has a check")

    async def __aexit__(self, *_: object) -> None: ...

    async def check(self) -> None:
        raise DeniedError("who are you?")


class Opens:
    """A part that can only be opened and closed."""

    def __init__(self) -> None:
        self.steps: list[str] = []

    async def __aenter__(self) -> None:
        self.steps.append("opened")

    async def __aexit__(self, *_: object) -> None:
        self.steps.append("closed")


async def test_unreachable_calls_check_of_part_else_opens_it() -> None:
    """``check`` changes nothing in the store."""
    assert await unreachable("sink", Refuses(), 5.0) == [Fault("sink: who are you?", 77)]
    part = Opens()
    assert await unreachable("source", part, 5.0) == []
    assert part.steps == ["opened", "closed"]
