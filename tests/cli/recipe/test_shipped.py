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
    config = tmp_path / "etc" / "ccpipe.toml"
    assert find_recipe(Path("parquet"), config) == own
    assert find_recipe(Path("null"), config) == ROOT / "bridges" / "null.toml"
    assert find_recipe(Path("parquet"), None) == ROOT / "bridges" / "parquet.toml"
    (tmp_path / "parquet").mkdir()  # such as one with data
    assert find_recipe(Path("parquet"), config) == own
    (tmp_path / "parquet").rmdir()
    (tmp_path / "parquet").touch()
    assert find_recipe(Path("parquet"), config) == Path("parquet")
    assert find_recipe(Path("x/parquet"), config) == Path("x/parquet")


def test_recipe_is_found_next_to_configuration_of_command(tmp_path: Path) -> None:
    """The one that ``--config`` names, or the environment."""
    (tmp_path / "bridges").mkdir()
    (tmp_path / "bridges" / "own.toml").write_text('[source]\nuse = "null"\n[sink]\nuse = "null"')
    config = tmp_path / "ccpipe.toml"
    config.touch()
    for words in (["bridge"], ["validate", "--no-connect"]):
        assert ccpipe(*words, "own", "--config", config).code == 0
        assert ccpipe(*words, "own", CCPIPE_CONFIG=str(config)).code == 0
        assert ccpipe(*words, "own").code == 66


def test_unknown_recipe_is_reported_with_suggestion() -> None:
    """Exit code 66: neither a file nor a recipe."""
    with pytest.raises(MissingInputError, match="unknown recipe 'parket'; did you mean 'parquet'"):
        find_recipe(Path("parket"), None)
    assert ccpipe("bridge", "parket").code == 66
