"""The public face of the library as a page, from its docstrings.

Signatures are copied from the source, so that the page is the same with every version of Python.
"""

import ast
import functools
import importlib
import inspect
import itertools
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FunctionType, ModuleType

import ccpipe

PAGE = """\
# Python

{generated}
The public names of `import ccpipe`; [python.md](../guide/python.md) shows their use. Other names
in the package may change with any version.
"""

MAX_LINE = 88

INTERNAL = {
    "Lines": """
        parts rows digest verbatim bare_points columns size only_field used_types append_row extend
        with_series passthrough
        """,
    "Jobs": "size_of",
    "RecordList": "size_of",
    "Provenance": "part extended is_inside split_point split large runs unstored",
}
"""Attributes and methods that only ccpipe's own modules use; they may change with any version."""

Defined = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
_UNDERLINED = re.compile(r"^(Parameters|Returns|Yields|Raises)\n-+\n", re.MULTILINE)


def page(generated: str) -> str:
    """Return the page's text."""
    groups: dict[str, list[str]] = {"Data": [], "Bus": [], "Pipes": [], "Errors": []}
    for name in ccpipe.__all__:
        value = getattr(ccpipe, name)
        if inspect.ismodule(value):
            groups["Data"].append("".join(_module_entry(value, name)))
        else:
            entry = "".join(_entry(_definition(value.__module__, value.__name__), name))
            groups[_group(value)].append(entry)
    text = PAGE.format(generated=generated)
    return text + "".join(f"\n## {group}\n{''.join(entries)}" for group, entries in groups.items())


def _group(value: type | FunctionType) -> str:
    if inspect.isclass(value) and issubclass(value, Exception):
        return "Errors"
    rooms = {"ccpipe.client": "Bus", "ccpipe.pipeline": "Pipes", "ccpipe.node": "Pipes"}
    found = (
        group for room, group in rooms.items() if f"{value.__module__}.".startswith(f"{room}.")
    )
    return next(found, "Data")


def _module_entry(module: ModuleType, name: str) -> Iterator[str]:
    """Yield a module, and its ``decode`` and ``encode``."""
    yield f"\n### {name}\n\n{_paragraphs(inspect.getdoc(module) or '')}\n"
    for each in (module.decode, module.encode):
        node = _definition(each.__module__, each.__name__)
        yield f"\n#### {name}.{node.name}\n\n"
        yield f"```python\n{_signature(node)}\n```\n\n{_prose(node)}\n"


@functools.cache
def _module(name: str) -> ast.Module:
    file = importlib.import_module(name).__file__
    assert file is not None
    return ast.parse(Path(file).read_text(encoding="utf-8"))


def _definition(module: str, name: str) -> Defined:
    for node in reversed(_module(module).body):  # the definition is after its overloads
        if isinstance(node, Defined) and node.name == name:
            return node
    raise LookupError(f"{module} does not define {name}")


def _entry(node: Defined, name: str) -> Iterator[str]:
    yield f"\n### {name}\n\n```python\n{_signature(node)}\n```\n\n{_prose(node)}\n"
    if not isinstance(node, ast.ClassDef):
        return
    internal = INTERNAL.get(name, "").split()
    yield from _attributes(node, internal)
    for method in node.body:
        if not isinstance(method, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if method.name.startswith("_") or _is(method, "overload") or method.name in internal:
            continue
        if _is(method, "property"):
            text = _type(method.returns) if method.returns else ""
            yield f"\n#### {name}.{method.name}: {text}\n\n{_prose(method)}\n"
        else:
            yield f"\n#### {name}.{method.name}\n\n"
            yield f"```python\n{_signature(method)}\n```\n\n{_prose(method)}\n"


def _is(method: ast.FunctionDef | ast.AsyncFunctionDef, decorator: str) -> bool:
    return any(ast.unparse(each).endswith(decorator) for each in method.decorator_list)


def _signature(node: Defined) -> str:
    if isinstance(node, ast.ClassDef):
        bases = [name for base in node.bases if not (name := ast.unparse(base)).startswith("_")]
        return f"class {node.name}" + (f"({', '.join(bases)})" if bases else "")
    word = "async def" if isinstance(node, ast.AsyncFunctionDef) else "def"
    arguments = _parameters(node.args)
    returns = f" -> {_type(node.returns)}" if node.returns else ""
    line = f"{word} {node.name}({', '.join(arguments)}){returns}"
    if len(line) <= MAX_LINE:
        return line
    inside = "".join(f"    {each},\n" for each in arguments)
    return f"{word} {node.name}(\n{inside}){returns}"


def _parameters(arguments: ast.arguments) -> list[str]:
    """Return the parameters as they are written, without self."""
    found: list[str] = []
    plain = [*arguments.posonlyargs, *arguments.args]
    defaults = [None] * (len(plain) - len(arguments.defaults)) + [*arguments.defaults]
    for argument, default in zip(plain, defaults, strict=True):
        found.append(_parameter(argument, default))
        if arguments.posonlyargs and argument is arguments.posonlyargs[-1]:
            found.append("/")
    if arguments.vararg:
        found.append("*" + _parameter(arguments.vararg, None))
    elif arguments.kwonlyargs:
        found.append("*")
    for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        found.append(_parameter(argument, default))
    if arguments.kwarg:
        found.append("**" + _parameter(arguments.kwarg, None))
    return [each for each in found if each not in ("self", "cls")]


def _parameter(argument: ast.arg, default: ast.expr | None) -> str:
    text = argument.arg
    if argument.annotation:
        text += f": {_type(argument.annotation)}"
    if default is not None:
        text += f" = {ast.unparse(default)}" if argument.annotation else f"={ast.unparse(default)}"
    return text


def _type(annotation: ast.expr) -> str:
    """Write a type, without the quotes of one that was not defined yet."""
    text = ast.unparse(annotation)
    return text if "Literal[" in text else text.replace("'", "")


def _attributes(node: ast.ClassDef, internal: Sequence[str]) -> Iterator[str]:
    """Yield a table of the attributes that have a docstring, in the class or in ``__init__``."""
    body = list(node.body)
    for each in node.body:
        if isinstance(each, ast.FunctionDef) and each.name == "__init__":
            body += each.body
    rows = []
    for statement, after in itertools.pairwise(body):
        match after:
            case ast.Expr(value=ast.Constant(value=str(text))):
                pass
            case _:
                continue
        match statement:
            case ast.AnnAssign(target=ast.Name(id=name), annotation=kind):
                rows.append((name, _type(kind), text))
            case ast.AnnAssign(target=ast.Attribute(attr=name), annotation=kind):
                rows.append((name, _type(kind), text))
            case ast.Assign(targets=[ast.Attribute(attr=name) | ast.Name(id=name)]):
                rows.append((name, "", text))
    rows = [row for row in rows if not row[0].startswith("_") and row[0] not in internal]
    if rows:
        yield "\n| attribute | type | meaning |\n| --- | --- | --- |\n"
    for name, type_, text in rows:
        meaning = _inline(" ".join(text.split()))
        cells = [f"`{name}`", f"`{type_}`" if type_ else "", meaning]
        yield "| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |\n"


def _prose(node: Defined) -> str:
    """Return a docstring as Markdown."""
    text = inspect.cleandoc(ast.get_docstring(node) or "")
    head, *sections = _UNDERLINED.split(text)
    parts = [_paragraphs(head.strip())]
    for title, body in zip(sections[::2], sections[1::2], strict=True):
        parts.append(f"**{title}**\n\n{_definitions(body.strip())}")
    return "\n\n".join(filter(None, parts))


def _paragraphs(text: str) -> str:
    """Turn ``::`` and doctests into blocks of code."""
    found: list[str] = []
    for part in text.split("\n\n"):
        if part.startswith(">>>"):
            found.append(f"```python\n{part}\n```")
        elif part.startswith("    "):
            found.append(f"```text\n{inspect.cleandoc(part)}\n```")
        else:
            found.append(_inline(re.sub(r"::$", ":", part)))
    return "\n\n".join(found)


def _definitions(text: str) -> str:
    """Turn a section of names and what they mean into a list."""
    items: list[list[str]] = []
    for line in text.splitlines():
        if line.startswith("    "):
            items[-1].append(line.strip())
        elif line:
            items.append([line])
    return "\n".join(
        f"- `{name}`" + (f": {_inline(' '.join(meaning))}" if meaning else "")
        for name, *meaning in items
    )


def _inline(text: str) -> str:
    """Turn the marks of docstrings into Markdown's."""
    text = re.sub(r"``(.+?)``", r"`\1`", text)
    parts = re.split(r"(`[^`]+`)", text)
    parts[::2] = [re.sub(r"([<>\[\]_])", r"\\\1", part) for part in parts[::2]]
    return "".join(parts)
