"""The package as a whole: exports, names, layers, what importing it costs, what it promises."""

import ast
import importlib
import inspect
import re
import subprocess
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest

import ccpipe
from ccpipe import errors, registry
from tests.paths import ROOT

PYPROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT: dict[str, Any] = PYPROJECT["project"]
PARTS = [
    (group, value)
    for group, entries in PROJECT["entry-points"].items()
    for value in entries.values()
]
METHODS = {
    "ccpipe.sources": ("batches", "stop"),
    "ccpipe.translators": ("feed",),
    "ccpipe.sinks": ("write",),
}

HEAVY = ("nats", "pyarrow", "psutil", "aiohttp", "numpy", "duckdb", "prometheus_client", "cython")


PUBLIC = """
    decode encode Lines Message to_lines connect BusClient sonar
    read_jobs JobFile Job JobNode Jobs
    run Metric Source Batch Translator HoldingTranslator Sink Limits Duration
    Codec Received Provenance RecordList RejectedRecord Subjects Packing
    CcpipeError UsageError ConfigError MissingInputError CreateError OutputError MissingExtra
    DataError EncodeError RejectedError UnavailableError TimedOutError DeniedError
"""


def test_public_interface_is_listed() -> None:
    """These names and no others, each of them documented; errors are last, all of the tree."""
    assert ccpipe.__all__ == PUBLIC.split()
    assert set(ccpipe.__all__) <= set(dir(ccpipe))
    for name in ccpipe.__all__:
        value = getattr(ccpipe, name)
        assert value.__name__.removeprefix("ccpipe.formats.") == name
        assert value.__doc__
    tree = [
        name for name, each in vars(errors).items()
        if isinstance(each, type) and each.__module__ == errors.__name__
    ]  # fmt: skip
    assert ccpipe.__all__[-len(tree) :] == tree
    assert re.fullmatch(r"\d+\.\d+\.\d+", ccpipe.__version__)


def test_private_name_is_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'ccpipe' has no attribute 'deocde'"):
        _ = ccpipe.deocde
    assert not hasattr(ccpipe, "deocde")


def test_public_names_are_imported_on_first_use() -> None:
    """``import ccpipe`` loads none of ccpipe's modules; ``decode`` does not load the pipeline."""
    code = """
import sys, ccpipe
print([name for name in sys.modules if name.startswith("ccpipe.")])
ccpipe.decode
print("ccpipe.formats.lineprotocol" in sys.modules, "ccpipe.pipeline" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["[]", "True False"]


@pytest.mark.parametrize("module", ["ccpipe", "ccpipe.cli", "ccpipe.message", "ccpipe.config"])
def test_import_loads_no_slow_module(module: str) -> None:
    """So that ``ccpipe --help`` stays fast."""
    code = f"import sys, {module}; print(*sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) & set(HEAVY) == set()
    assert module in done.stdout.split()


def test_entry_point_groups_equal_registry() -> None:
    assert set(PROJECT["entry-points"]) == {f"ccpipe.{group}" for group in registry.GROUPS}


def test_every_entry_point_can_be_named_in_recipe() -> None:
    """It names a documented class that has the methods of its protocol.

    Its arguments are annotated with types that a recipe can express, so that its options can be
    shown.
    """
    for group, value in PARTS:
        module, _, attribute = value.partition(":")
        cls = getattr(importlib.import_module(module), attribute)
        assert inspect.isclass(cls), value
        assert cls.__doc__, value
        for method in METHODS.get(group, ()):
            assert callable(getattr(cls, method)), value
        for parameter in inspect.signature(cls).parameters.values():
            assert parameter.annotation is not inspect.Parameter.empty, value
        options = registry.options_of(cls, {"site": None, "telemetry": None}).__struct_fields__
        assert set(options) == set(registry.arguments_of(cls)) - {"site", "telemetry"}, value


def test_command_is_installed() -> None:
    module, _, function = PROJECT["scripts"]["ccpipe"].partition(":")
    assert callable(getattr(importlib.import_module(module), function))


WITHOUT_EXTRAS = """
import importlib, pkgutil, sys
import ccpipe
from ccpipe.errors import MissingExtra

for name in sys.argv[1:]:
    sys.modules[name] = None

def visit(path, prefix):
    for found in pkgutil.iter_modules(path, prefix):
        if found.name.endswith("__main__"):
            continue
        try:
            module = importlib.import_module(found.name)
        except MissingExtra:
            continue
        except ImportError as error:
            print(found.name, error)
            continue
        visit(getattr(module, "__path__", ()), f"{found.name}.")

visit(ccpipe.__path__, "ccpipe.")
"""


def test_module_without_its_extra_names_it() -> None:
    """Whichever is imported first: the error has the pip line to type."""
    extras = (
        "aiohttp", "aiokafka", "aiomqtt", "asyncpg", "cramjam", "duckdb", "h5py", "matplotlib",
        "deltalake", "pyarrow", "pynvml", "textual",
    )  # fmt: skip
    command = [sys.executable, "-c", WITHOUT_EXTRAS, *extras]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == ""


def test_public_names_have_docstrings() -> None:
    """Also each public method: readers of the reference do not see the source."""
    named = [(name, getattr(ccpipe, name)) for name in ccpipe.__all__]
    named += [
        (f"{name}.{member}", value)
        for name, kind in named
        if inspect.isclass(kind)
        for member, value in vars(kind).items()
        if not member.startswith("_") and callable(value)
    ]
    assert [name for name, value in named if not inspect.getdoc(value)] == []


LAYERS = [
    name.strip(" ()")
    for contract in PYPROJECT["tool"]["importlinter"]["contracts"]
    for layer in contract.get("layers", ())
    for name in layer.split("|")
]
ABOVE_ALL = {"ccpipe", "ccpipe.__main__", "ccpipe.bus", "ccpipe.node"}
"""The public face, and packages without code of which the layers name each part."""


def modules() -> Iterator[str]:
    for path in (ROOT / "ccpipe").rglob("*.py"):
        yield ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def test_every_module_is_in_layer() -> None:
    """A new directory must be assigned to one; else it could import anything."""
    layers = tuple(f"{layer}." for layer in LAYERS)
    outside = {name for name in modules() if not f"{name}.".startswith(layers)}
    assert outside == ABOVE_ALL


def test_public_classes_have_distinct_names() -> None:
    """So that the name identifies one class."""
    found = defaultdict(list)
    for path in (ROOT / "ccpipe").rglob("*.py"):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[node.name].append(str(path.relative_to(ROOT)))
    assert {name: sorted(paths) for name, paths in found.items() if len(paths) > 1} == {}
