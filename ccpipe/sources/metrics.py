"""What collectors say that they send; ``docs/metrics.md`` is written from it.

::

    python -m ccpipe.sources.metrics > docs/metrics.md
"""

import importlib
import inspect
import json
import textwrap
from collections.abc import Iterator
from importlib import metadata
from typing import Any, NamedTuple


class Metric(NamedTuple):
    """One row of a collector's table ``METRICS``."""

    name: str
    unit: str
    """Empty for a plain number or count."""
    kind: type[float]
    """``int`` or ``float``: how the value stands on the wire."""
    meaning: str
    types: tuple[str, ...] = ("node",)
    """What the tag ``type`` says."""
    stype: str = ""
    """What the tag ``stype`` says; empty where there is none."""
    part: str = ""
    """What it says where parts of the device are told of too; empty where they are not."""


_HEAD = """\
# Metrics

What each collector sends. This page is written from the collectors themselves
(`python -m ccpipe.sources.metrics > docs/metrics.md`) and a test keeps it true.

Names and units are those of the ClusterCockpit specification where it has one, else those of
cc-metric-collector. Every metric carries the tags `cluster`, `hostname` and `type`; where a table
says `stype=…` it carries `stype` and `stype-id` too. What a node does not have is left out.

Options go below `[publish.collectors.<collector>]` in `ccpipe.toml`. Beside its own, each collector
knows `enabled = false`, which leaves it out, and `interval = "60s"`, where it is to be asked at
another interval than the rest.
"""


def units() -> dict[str, str]:
    """Return the units of all metrics whose collectors declare them, plug-ins' too, by name."""
    modules = {entry.module for entry in metadata.entry_points(group="ccpipe.collectors")}
    tables = [getattr(importlib.import_module(name), "METRICS", ()) for name in sorted(modules)]
    return {row.name: row.unit for table in tables for row in table if row.unit}


def page() -> str:
    """Return ``docs/metrics.md``: a section for each collector of ccpipe's own."""
    entries = sorted(metadata.entry_points(group="ccpipe.collectors"))
    own = [entry for entry in entries if entry.module.startswith("ccpipe.")]
    links = " · ".join(f"[{entry.name}](#{entry.name})" for entry in own) + "\n"
    return "\n".join([_HEAD, links, *("\n".join(_section(entry)) for entry in own)])


def _section(entry: metadata.EntryPoint) -> Iterator[str]:
    module = importlib.import_module(entry.module)
    collector = entry.load()
    yield f"## {entry.name}\n"
    yield _prose(module) + "\n"
    yield "| option | default | meaning |\n|---|---|---|"
    meanings = _meanings(collector)
    for name, parameter in inspect.signature(collector).parameters.items():
        yield f"| `{name}` | `{json.dumps(parameter.default)}` | {meanings[name]} |"
    if module.METRICS:
        yield "\n| metric | unit | value | of | meaning |\n|---|---|---|---|---|"
    for row in module.METRICS:
        of = ", ".join(row.types) + (f", stype={row.stype}" if row.stype else "")
        of += f", also stype={row.part}" if row.part else ""
        yield f"| `{row.name}` | {row.unit} | {row.kind.__name__} | {of} | {row.meaning} |"
    yield ""


def _prose(thing: Any) -> str:
    return (inspect.getdoc(thing) or "").replace("``", "`")


def _meanings(collector: type[Any]) -> dict[str, str]:
    """Read the options' meanings off the *Parameters* of a class's docstring."""
    _, _, parameters = _prose(collector).partition("----------\n")
    blocks = textwrap.dedent(parameters).replace("\n    ", "\t").splitlines()
    return {name: " ".join(text) for name, *text in (block.split("\t") for block in blocks)}


if __name__ == "__main__":
    print(page(), end="")  # noqa: T201 - the page is what this prints
