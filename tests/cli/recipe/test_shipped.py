"""Recipes by name."""

from pathlib import Path

import pytest

from ccpipe.cli.recipe.shipped import directory, find_recipe, recipes
from ccpipe.errors import MissingInputError
from tests.cli.command import ccpipe
from tests.paths import ROOT


def test_shipped_recipes_are_found_by_name() -> None:
    """In a working copy and in a wheel alike."""
    assert set(recipes()) == {path.stem for path in (ROOT / "bridges").glob("*.toml")}
    assert (directory() / "nats.conf").is_file()
    assert (directory() / "docs" / "README.md").is_file()


def test_bridge_runs_recipe_by_name(tmp_path: Path) -> None:
    """From any directory."""
    shown = ccpipe("bridge", "null", "--dry-run", "--for", "10s")
    assert shown.code == 0
    assert len(shown.out.splitlines()) == 50_000
    assert ccpipe("validate", "null", "--no-connect").code == 0


def test_site_recipe_overrides_shipped_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A recipe next to its configuration file; a file of the name overrides both."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "etc" / "bridges").mkdir(parents=True)
    own = tmp_path / "etc" / "bridges" / "parquet.toml"
    own.touch()
    monkeypatch.setenv("CCPIPE_CONFIG", str(tmp_path / "etc" / "ccpipe.toml"))
    assert find_recipe(Path("parquet")) == own
    assert find_recipe(Path("null")) == ROOT / "bridges" / "null.toml"
    (tmp_path / "parquet").mkdir()  # such as one with data
    assert find_recipe(Path("parquet")) == own
    (tmp_path / "parquet").rmdir()
    (tmp_path / "parquet").touch()
    assert find_recipe(Path("parquet")) == Path("parquet")
    assert find_recipe(Path("x/parquet")) == Path("x/parquet")


def test_unknown_recipe_is_reported_with_suggestion() -> None:
    """Exit code 66: neither a file nor a recipe."""
    with pytest.raises(MissingInputError, match="unknown recipe 'parket'; did you mean 'parquet'"):
        find_recipe(Path("parket"))
    assert ccpipe("bridge", "parket").code == 66
