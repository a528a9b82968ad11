"""The import contracts of ``pyproject.toml``: that they speak of every module."""

import tomllib
from collections.abc import Iterator

from tests.paths import ROOT

LINTER = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
LAYERS = [
    name.strip(" ()")
    for contract in LINTER["contracts"]
    for layer in contract.get("layers", ())
    for name in layer.split("|")
]
ABOVE_ALL = {"ccpipe", "ccpipe.__main__", "ccpipe.bus", "ccpipe.node"}
"""The public face, and packages without code of which the layers name each part."""


def modules() -> Iterator[str]:
    for path in (ROOT / "ccpipe").rglob("*.py"):
        yield ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def test_every_module_is_in_a_layer() -> None:
    """A new room must say where it stands; else it could import whatever it likes."""
    layers = tuple(f"{layer}." for layer in LAYERS)
    outside = {name for name in modules() if not f"{name}.".startswith(layers)}
    assert outside == ABOVE_ALL
