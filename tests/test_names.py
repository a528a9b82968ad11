"""Names of the package: one word for one thing."""

import ast
from collections import defaultdict

from tests.paths import ROOT


def test_no_public_class_has_the_name_of_another() -> None:
    """Who reads the name of a class, or searches for it, finds one thing."""
    found = defaultdict(list)
    for path in (ROOT / "ccpipe").rglob("*.py"):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[node.name].append(str(path.relative_to(ROOT)))
    assert {name: sorted(paths) for name, paths in found.items() if len(paths) > 1} == {}
