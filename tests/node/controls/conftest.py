"""Shared by tests of controls: a machine's files, and a function that sets a control."""

from collections.abc import Callable

import pytest

from ccpipe.node.controls.control import Control

NODE = {"type": "node"}

Put = Callable[[str, str, dict[str, str]], object]


@pytest.fixture
def put(controls: dict[str, Control]) -> Put:
    """Return a function that sets a control of the module's fixture `controls`."""

    def put(name: str, value: str, tags: dict[str, str]) -> object:
        setter = controls[name].put
        assert setter is not None
        return setter(value, tags)

    return put
