"""``ccpipe init``: the initial files of a site."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from ccpipe.cli.console.options import URL, read_servers
from ccpipe.cli.recipe.shipped import COMPLETED, directory, recipes, shipped_recipe
from ccpipe.errors import CreateError, UsageError, create_reason
from ccpipe.terminal import listed

CONFIG = """\
# What all of a site's ccpipe commands share; `ccpipe config show` prints all keys.
cluster = {cluster}

[bus]
servers = {servers}
# user = "node"
# password_file = "/etc/ccpipe/nats-password"     # one line, mode 0600
# ca_file = "/etc/ssl/site-ca.pem"

[publish]
interval = "10s"
# [publish.collectors.disk]                       # `ccpipe plugins disk` prints its options
# enabled = false

# [telemetry]
# listen = "127.0.0.1:9400"                       # /health, /ready, /metrics
"""


def init(
    dir_: Annotated[Path, Parameter(name="DIR")] = Path(),
    /,
    *,
    cluster: str = "local",
    server: Annotated[str, URL] = "nats://127.0.0.1:4222",
    recipe: Annotated[list[str] | None, COMPLETED] = None,
    units: bool = False,
    dry_run: bool = False,
) -> None:
    """Write the initial files of a site: ccpipe.toml, nats.conf and recipes.

    The files are copies of those shipped with ccpipe, for you to edit. Nothing is
    overwritten: if one of the files exists, none is written.

    Examples:
      ccpipe init /etc/ccpipe --cluster fritz --server nats://10.0.0.1:4222
      ccpipe init --recipe parquet --recipe victoriametrics
      ccpipe init /etc/ccpipe --units

    Parameters
    ----------
    dir_
        Directory to write to; default: the current one.
    cluster
        Name of the cluster.
    server
        The NATS server; comma-separated if several.
    recipe
        Recipes to write, by name; default: all.
    units
        Write systemd units, too.
    dry_run
        Print the names of the files, but write none.
    """
    shipped = directory()
    chosen = {name: shipped_recipe(name) for name in recipe} if recipe else recipes()
    config = CONFIG.format(
        cluster=json.dumps(cluster, ensure_ascii=False),  # JSON's strings are TOML's
        servers=json.dumps(read_servers(server), ensure_ascii=False),
    )
    files = {Path("ccpipe.toml"): config, Path("nats.conf"): _read(shipped / "nats.conf")}
    for name, path in chosen.items():
        files[Path("bridges", f"{name}.toml")] = _read(path)
    if units:
        for path in sorted((shipped / "bridges" / "systemd").glob("*.service")):
            files[Path("systemd", path.name)] = _read(path)
    _check_absent(dir_, files)
    if not dry_run:
        _write(dir_, files)
    for path in files:
        print(dir_ / path)


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def _check_absent(target: Path, files: Iterable[Path]) -> None:
    existing = [str(target / path) for path in files if (target / path).exists()]
    if existing:
        verb = "exists" if len(existing) == 1 else "exist"
        raise UsageError(f"{listed(existing)} {verb}; nothing was written")


def _write(target: Path, files: Mapping[Path, str]) -> None:
    try:
        for path, text in files.items():
            (target / path).parent.mkdir(parents=True, exist_ok=True)
            with (target / path).open("x", encoding="utf-8") as file:
                file.write(text)
    except OSError as error:
        raise CreateError(f"{error.filename or target}: {create_reason(error)}") from None
