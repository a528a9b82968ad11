"""``ccpipe auth``: permissions on the broker."""

from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from ccpipe.bus.nats.accounts import (
    ROLES,
    ensure_domains,
    ensure_keys,
    missing_seeds,
    write_site,
)
from ccpipe.cli.console.options import ClusterOptions, Nodes, expand_nodes
from ccpipe.cli.console.output import Output, print_json, print_table
from ccpipe.errors import CreateError, UsageError, create_reason
from ccpipe.formats.nodelist import compress
from ccpipe.terminal import note, working

auth = App(
    name="auth",
    help="""Generate keys and the broker configuration for a site.

Examples: ccpipe auth init keys --cluster fritz --node 'f[01-88]'
          ccpipe auth init keys --cluster fritz --node f89
          ccpipe auth init keys --cluster fritz --operator alice""",
    help_format="plaintext",
)

Several = list[str] | None


@auth.command
def init(
    dir_: Annotated[Path, Parameter(name="DIR")],
    /,
    *,
    node: Nodes = None,
    bridge: Several = None,
    operator: Several = None,
    viewer: Several = None,
    domain: Several = None,
    dry_run: bool = False,
    output: Output = "table",
    where: ClusterOptions = ClusterOptions(),
) -> None:
    """Generate keys and the configuration of nats-server and of the site.

    Nodes can publish only under their own name, bridges read and store,
    operators use controls, viewers only subscribe. Run it again to add users:
    existing keys are kept. docs/operations/security.md explains where to put each file.

    Examples:
      ccpipe auth init keys --cluster fritz --node 'f[01-88]'
      ccpipe auth init keys --cluster fritz --bridge slurm --operator alice
      ccpipe auth init keys --cluster fritz --node 'g[1-4]' -o json

    Parameters
    ----------
    dir_
        Where to write keys and configuration; readable only by you.
    bridge
        Names of bridges; default: bridge.
    operator
        Names of operators; default: operator.
    viewer
        Names of viewers; default: viewer.
    domain
        JetStream domains of leaf nodes that bridges can use, such as rack1.
    dry_run
        Print the names of the keys that would be generated; write nothing.
    """
    directory, cluster = dir_, where.site().cluster
    names = {
        "node": expand_nodes(node),
        "bridge": bridge or ["bridge"],
        "operator": operator or ["operator"],
        "viewer": viewer or ["viewer"],
    }
    if dry_run:
        new = [path for role in ROLES for path in missing_seeds(directory, role, names[role])]
        print("".join(f"{path}\n" for path in new), end="")
        return
    with working("writing keys"):
        try:
            directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            for role in ROLES:
                ensure_keys(directory, role, names[role])
            ensure_domains(directory, domain or ())
        except OSError as error:
            raise CreateError(f"{directory}: {create_reason(error)}") from None
        users = write_site(directory, cluster)
    if not any(user.role == "node" for user in users):
        raise UsageError("no node given, such as --node 'f[01-88]'")
    if output == "json":
        print_json([{**u._asdict(), "file": str(_seed(directory, u.role, u.name))} for u in users])
        return
    by_role = {role: [user.name for user in users if user.role == role] for role in ROLES}
    rows = [
        [role, " ".join(compress(by_role[role])), str(_seed(directory, role))] for role in ROLES
    ]
    print_table(rows, ["ROLE", "WHO", "SEEDS"])
    broker, site = directory / "nats.conf", directory / "ccpipe.toml"
    note(f"{broker} is for the broker, {site} for nodes and bridges")


def _seed(directory: Path, role: str, name: str = "") -> Path:
    return directory / "nkeys" / role / (f"{name}.nk" if name else "")
