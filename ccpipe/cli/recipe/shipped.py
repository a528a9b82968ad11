"""Files shipped with ccpipe: recipes, units, the server's configuration and pages.

A wheel contains them in the package (``setup.py`` copies them); in a working copy they are at
their original paths.
"""

from pathlib import Path

import ccpipe
from ccpipe.config import find_config
from ccpipe.errors import MissingInputError, suggestion

_PACKAGE = Path(ccpipe.__file__).parent


def directory() -> Path:
    """Return the directory with ``bridges/``, ``docs/`` and ``nats.conf``."""
    inside = _PACKAGE / "shipped"
    return inside if inside.is_dir() else _PACKAGE.parent


def recipes() -> dict[str, Path]:
    return {path.stem: path for path in sorted((directory() / "bridges").glob("*.toml"))}


def find_recipe(path: Path) -> Path:
    """Return the path of a recipe that is given as a file or by name.

    A name is searched for in ``bridges/`` next to the configuration file, as ``ccpipe init`` writes
    it, then among the shipped recipes.
    """
    name = str(path)
    if name == "-" or path.suffix or len(path.parts) != 1 or path.is_file():
        return path
    config = find_config()
    if config is not None and (own := config.parent / "bridges" / f"{name}.toml").is_file():
        return own
    return shipped_recipe(name)


def shipped_recipe(name: str) -> Path:
    """Return the path of a shipped recipe; raises MissingInputError if there is none."""
    known = recipes()
    if name not in known:
        hint = suggestion(name, known, "`ccpipe init` writes all recipes")
        raise MissingInputError(f"unknown recipe {name!r}; {hint}")
    return known[name]
