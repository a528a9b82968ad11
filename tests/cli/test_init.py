"""``ccpipe init``: files that work, and never over those that are there."""

from pathlib import Path

from ccpipe.cli.recipe.shipped import recipes
from ccpipe.config import Site, load
from tests.cli.command import ccpipe
from tests.paths import ROOT


def written(directory: Path) -> set[str]:
    return {str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file()}


def test_init_writes_initial_files_of_site(tmp_path: Path) -> None:
    """Configuration, server, recipes and units; each is valid, and bridges run by name."""
    target = tmp_path / "etc"
    shown = ccpipe(
        "init", target, "--cluster", 'fr"itz', "--server", "nats://a,nats://b", "--units"
    )
    assert shown.code == 0, shown.err
    names = {f"bridges/{name}.toml" for name in recipes()}
    units = {f"systemd/{path.name}" for path in (ROOT / "bridges/systemd").glob("*.service")}
    assert written(target) == {"ccpipe.toml", "nats.conf"} | names | units
    assert shown.out.splitlines() == [str(target / name) for name in (
        "ccpipe.toml", "nats.conf", *sorted(names), *sorted(units)
    )]  # fmt: skip
    site = load(target / "ccpipe.toml", Site, environ={})
    assert (site.cluster, site.bus.servers) == ('fr"itz', ["nats://a", "nats://b"])
    assert (target / "nats.conf").read_bytes() == (ROOT / "nats.conf").read_bytes()
    config = str(target / "ccpipe.toml")
    assert str(ROOT) not in Path(config).read_text()  # it may be copied to other machines
    assert ccpipe("validate", config, target / "bridges" / "null.toml", "--no-connect").code == 0


def test_init_overwrites_nothing(tmp_path: Path) -> None:
    """If one file exists, none is written, and it is named."""
    (tmp_path / "nats.conf").write_text("mine")
    shown = ccpipe("init", tmp_path)
    assert shown.code == 64
    assert f"{tmp_path}/nats.conf exists; nothing was written" in shown.err
    assert written(tmp_path) == {"nats.conf"}
    assert (tmp_path / "nats.conf").read_text() == "mine"


def test_dry_run_of_init_prints_names_only(tmp_path: Path) -> None:
    """Of the files that would be written; existing ones are an error, too."""
    target = tmp_path / "etc"
    shown = ccpipe("init", target, "--recipe", "parquet", "--dry-run")
    assert shown.code == 0, shown.err
    assert shown.out == ccpipe("init", target, "--recipe", "parquet").out
    assert ccpipe("init", target, "--dry-run").code == 64
    assert written(target) == {"ccpipe.toml", "nats.conf", "bridges/parquet.toml"}


def test_init_writes_chosen_recipes(tmp_path: Path) -> None:
    """By name; a misspelt one is reported before anything is written."""
    assert ccpipe("init", tmp_path, "--recipe", "parket").code == 66
    assert written(tmp_path) == set()
    assert ccpipe("init", tmp_path, "--recipe", "parquet").code == 0
    assert written(tmp_path) == {"ccpipe.toml", "nats.conf", "bridges/parquet.toml"}
