"""Recipes, and other files shipped with ccpipe: units, the server's configuration and pages.

A wheel contains them in the package (``setup.py`` copies them); in a working copy they are at
their original paths.
"""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from cyclopts.completion import CompletionContext

import ccpipe
from ccpipe.cli.console.options import SiteOptions
from ccpipe.config import Recipe, find_config, load, read_toml
from ccpipe.errors import MissingInputError, suggestion

_PACKAGE = Path(ccpipe.__file__).parent


def directory() -> Path:
    """Return the directory with ``bridges/``, ``docs/`` and ``nats.conf``."""
    inside = _PACKAGE / "shipped"
    return inside if inside.is_dir() else _PACKAGE.parent


def recipes() -> dict[str, Path]:
    return {path.stem: path for path in sorted((directory() / "bridges").glob("*.toml"))}


def own_recipes(config: Path | None) -> dict[str, Path]:
    """Return the recipes in ``bridges/`` next to a configuration file, by name."""
    found = sorted((config.parent / "bridges").glob("*.toml")) if config else []
    return {path.stem: path for path in found}


def _names(context: CompletionContext) -> list[str]:
    given = context.get("--config")
    config = Path(given.raw) if given is not None and given.raw else find_config()
    return sorted({*recipes(), *own_recipes(config)})


COMPLETED = Parameter(completer=_names)
"""What the shell completes with the names of recipes, and with files."""

RecipePath = Annotated[Path, COMPLETED]
"""An argument for ``find_recipe``."""


def find_recipe(path: Path, config: Path | None) -> Path:
    """Return the path of a recipe that is given as a file or by name.

    A name is searched for in ``bridges/`` next to the configuration file `config`, as ``ccpipe
    init`` writes it, then among the shipped recipes.
    """
    name = str(path)
    if name == "-" or path.suffix or len(path.parts) != 1 or path.is_file():
        return path
    own = own_recipes(config)
    return own[name] if name in own else shipped_recipe(name)


def load_recipe(path: Path, where: SiteOptions) -> Recipe:
    """Load a recipe, which extends the site's configuration."""
    site = where.path()
    if site:
        where.site()  # errors in the site's file are reported as such, not as the recipe's
    return load(path, Recipe, flags=where.flags(), below=read_toml(site) if site else None)


def shipped_recipe(name: str) -> Path:
    """Return the path of a shipped recipe; raises MissingInputError if there is none."""
    known = recipes()
    if name not in known:
        hint = suggestion(name, known, "`ccpipe init` writes all recipes")
        raise MissingInputError(f"unknown recipe {name!r}; {hint}")
    return known[name]
