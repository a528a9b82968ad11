"""The page of all keys of the configuration, from the Structs of ``ccpipe.config.site``."""

import ast
import inspect
import itertools
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from ccpipe.cli.plugins import type_name
from ccpipe.config import Duration, Recipe, Site, Size, site, with_unit

HEAD = """\
# Configuration

{generated}
All keys of `ccpipe.toml` and of recipes.

## Precedence of values

Later ones override earlier ones:

1. the defaults below;
2. `ccpipe.toml`: the file named by `--config` or `$CCPIPE_CONFIG`, else
   `~/.config/ccpipe/ccpipe.toml`, else `/etc/ccpipe/ccpipe.toml`;
3. for a bridge its recipe, which may contain any key of the site's file in addition to its own;
4. environment variables: `CCPIPE_` and the key in capitals, where `__` enters a table:
   `CCPIPE_BUS__SERVERS=nats://a,nats://b`, `CCPIPE_SINK__URL=http://db:8428`;
5. flags.

`ccpipe config show` prints the configuration in force and the origin of each value. An unknown
key is an error before anything starts, and the message suggests the most similar key. Secrets are
never values: they are read from files that the configuration names.

These variables are not keys: `CCPIPE_CONFIG` names the file, `CCPIPE_LOGLEVEL` is the log level
(`debug`, `info`, `warning`, `error`), and `CCPIPE_KERNEL` chooses the compiled kernels
(`compiled`) or the Python implementation (`python`). The passwords that `nats.conf` reads are
ignored. So is any other variable that begins with `CCPIPE_`, contains no `__` and resembles no key;
it is reported once.

- A **duration** is a number of seconds or has a unit: {durations}.
- An **interval** is a duration of more than 0.
- A **size** is a number of bytes or has a unit: {sizes}.
"""


def page(generated: str) -> str:
    """Return the whole page; `generated` is the note with the command that writes it."""
    recipe_only = set(_fields(Recipe)) - set(_fields(Site))
    parts = [
        HEAD.format(generated=generated, durations=_units(Duration), sizes=_units(Size)),
        "## The site: `ccpipe.toml`\n",
        *_tables(Site, list(_fields(Site))),
        "## A recipe\n",
        f"{_markdown(inspect.getdoc(Recipe) or '')} `ccpipe plugins` shows the options of each.\n",
        *_tables(Recipe, [name for name in _fields(Recipe) if name in recipe_only]),
    ]
    return "\n".join(parts)


def _tables(kind: type[msgspec.Struct], names: Sequence[str], path: str = "") -> Iterator[str]:
    """Describe the keys of a Struct in a table, then each nested Struct in a table of its own."""
    meanings = _docstrings(kind)
    fields = _fields(kind)
    inner = {name: fields[name].type for name in names if _is_struct(fields[name].type)}
    rows = [
        f"| `{name}` | {type_name(field.type)} | {_default(field)} | {meanings[name]} |"
        for name, field in ((name, fields[name]) for name in names)
        if name not in inner
    ]
    if path:
        yield f"### `[{path}]`\n"
        yield f"{_markdown(inspect.getdoc(kind) or '')}\n"
    if rows:
        yield "\n".join(
            ["| key | type | default | meaning |", "| --- | --- | --- | --- |", *rows, ""]
        )
    for name, table in inner.items():
        yield from _tables(table, list(_fields(table)), f"{path}.{name}".lstrip("."))


def _fields(kind: type[msgspec.Struct]) -> dict[str, Any]:
    return {field.encode_name: field for field in msgspec.structs.fields(kind)}


def _is_struct(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


def _docstrings(kind: type[msgspec.Struct]) -> dict[str, str]:
    """Read the docstring below each field of a Struct and of its bases."""
    tree = ast.parse(Path(inspect.getfile(site)).read_text(encoding="utf-8"))
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    found: dict[str, str] = {}
    for cls in kind.__mro__:
        body = classes[cls.__name__].body if cls.__name__ in classes else []
        for field, below in itertools.pairwise(body):
            match field, below:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(ast.Constant(str(text))):
                    found[name] = _markdown(text)
    return found


def _markdown(text: str) -> str:
    return re.sub(r"``(.+?)``", r"`\1`", inspect.cleandoc(text).replace("\n", " ")).replace(
        "|", "\\|"
    )


def _default(field: Any) -> str:
    if field.required:
        return "required"
    if field.default is None:
        return "none"
    if field.default is not msgspec.NODEFAULT:
        measure = isinstance(field.default, Duration | Size)
        return f"`{with_unit(field.default) or 0 if measure else json.dumps(field.default)}`"
    made = field.default_factory()
    return f"`{json.dumps(made)}`" if made in ([], {}) else "the machine's"


def _units(kind: type[Duration] | type[Size]) -> str:
    return ", ".join(f"`{unit}`" for unit in kind.UNITS if unit)
