"""Names of before: each is refused with the new one."""

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ccpipe.config import Recipe, Site, load, renamed, set_at_path
from ccpipe.errors import ConfigError
from ccpipe.registry import build, entry_points, find, options_of
from ccpipe.telemetry import Telemetry

ENDS: dict[str, Any] = {"source": {"use": "null"}, "sink": {"use": "null"}}


def has_key(kind: Any, path: list[str]) -> bool:
    """Return whether a Struct has a key."""
    for step in path:
        fields = {field.encode_name: field.type for field in msgspec.structs.fields(kind)}
        if step not in fields:
            return False
        kind = fields[step]
    return True


@pytest.mark.parametrize(("old", "new"), renamed.KEYS.items())
def test_an_old_key_is_refused_with_the_new_one(old: str, new: str, tmp_path: Path) -> None:
    """In a file, in the environment, for a site and for a recipe; the new one exists."""
    tree: dict[str, Any] = {}
    set_at_path(tree, old.split("."), "x", old)
    variable = f"CCPIPE_{old.upper().replace('.', '__')}"
    for kind, below in ((Site, {}), (Recipe, ENDS)):
        with pytest.raises(ConfigError, match=f"was replaced by {new}$"):
            load(None, kind, below={**below, **tree}, environ={})
        with pytest.raises(ConfigError, match=f"^{variable}: .* was replaced by {new}$"):
            load(None, kind, below=below, environ={variable: "x"})
    assert has_key(Recipe, new.split("."))
    assert not has_key(Recipe, old.split("."))


@pytest.mark.parametrize(("place", "new"), renamed.OPTIONS.items())
def test_an_old_option_is_refused_with_the_new_one(place: tuple[str, str, str], new: str) -> None:
    """The part knows the new name and not the old one."""
    group, name, old = place
    with pytest.raises(ConfigError, match=f"the key '{old}' was replaced by {re.escape(new)}$"):
        build(group, {"use": name, old: 1}, where="r.toml", path="x", context={})
    options = options_of(find(group, name, "x"), {"site": None, "telemetry": Telemetry()})
    assert new.split(maxsplit=1)[0] in options.__struct_fields__
    assert old not in options.__struct_fields__


def test_an_old_part_is_refused_with_what_replaces_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every part in the table is gone; a recipe that names it learns what to write."""
    assert not [name for group, name in renamed.PARTS if name in entry_points(group)]
    monkeypatch.setitem(renamed.PARTS, ("sources", "old"), '`use = "nats"` and `codec = "old"`')
    for (group, name), new in renamed.PARTS.items():
        with pytest.raises(ConfigError) as caught:
            find(group, name, "r.toml: source.use")
        assert str(caught.value).endswith(f"{name!r} was replaced by {new}")
