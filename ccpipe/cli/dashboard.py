"""``ccpipe dashboard``: the current state of clusters, in a browser."""

import logging
import secrets
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import msgspec

from ccpipe.atomic_file import write_private
from ccpipe.cli.console.options import ExitAfter, SiteOptions, seconds
from ccpipe.cli.console.store import Store, open_store
from ccpipe.config import read_secret, state_directory
from ccpipe.errors import ConfigError, UsageError
from ccpipe.process.signals import stop_signals
from ccpipe.telemetry import Telemetry

if TYPE_CHECKING:
    from ccpipe.config import DashboardOptions
    from ccpipe.dashboard.sign_in import SignIn

log = logging.getLogger(__name__)


async def dashboard(
    *,
    listen: str | None = None,
    history: Store = None,
    token_file: Path | None = None,
    base_path: str | None = None,
    for_: ExitAfter = None,
    where: SiteOptions = SiteOptions(),
) -> None:
    """Show nodes, jobs, events and the pipe's health in a browser.

    The page shows live data from the bus and is read-only. Without options it
    listens on this machine only. Other addresses require a token or a reverse
    proxy that authenticates users; without either, a token is generated and
    included in the printed address. Who may see what is configured in the
    table [dashboard].

    Examples:
      ccpipe dashboard
      ccpipe dashboard --history /data/metrics --server nats://10.0.0.1:4222
      ccpipe dashboard --listen 0.0.0.0:8770 --token-file dashboard.token

    Parameters
    ----------
    listen
        Address and port to listen on; default: 127.0.0.1:8770.
    history
        The store that a bridge fills, for longer history: a directory of Parquet
        files, or the URL of VictoriaMetrics, Prometheus or PostgreSQL;
        default: history.store of the configuration.
    token_file
        File with the tokens that browsers must provide: a line "token role user"
        for each viewer, or only a token.
    base_path
        Path below which a reverse proxy serves the dashboard, such as /ccpipe.
    """
    from ccpipe.dashboard.server import DashboardServer
    from ccpipe.live.feed import LiveFeed

    site = where.site(**_flags(listen, token_file, base_path))
    store = open_store(site, history)
    sign_in, token = _sign_in(site.dashboard)
    telemetry = Telemetry()
    telemetry_server = telemetry.serve(site.telemetry.listen) if site.telemetry.listen else None
    try:
        async with (
            stop_signals(seconds(for_, "--for")) as stop,
            LiveFeed(site, telemetry, name="dashboard") as feed,
            DashboardServer(
                feed,
                sign_in=sign_in,
                history=store,
                silent_nodes=state_directory()
                / f"silent-nodes-{quote(site.cluster, safe='')}.json",
            ) as server,
        ):
            # A journal must not keep the token; a terminal may show it.
            shown = f"#token={token}" if token and sys.stderr.isatty() else ""
            log.info("the dashboard is at %s%s", server.url, shown)
            await feed.run(stop)
    finally:
        if store is not None:
            await store.close()
        if telemetry_server is not None:
            telemetry_server.close()


def _flags(listen: str | None, token_file: Path | None, base_path: str | None) -> Mapping[str, str]:
    """Return what the command line overrides, by key path; raises errors naming the option."""
    from ccpipe.dashboard.sign_in import Tokens, read_address

    flags: dict[str, str] = {}
    if listen is not None:
        try:
            read_address("--listen", listen)
        except ConfigError as error:
            raise UsageError(str(error)) from None
        flags["dashboard.listen"] = listen
    if token_file is not None:
        Tokens("--token-file", str(token_file))
        flags["dashboard.token_file"] = str(token_file)
    if base_path is not None:
        flags["dashboard.base_path"] = "" if base_path == "/" else base_path.rstrip("/")
    return flags


def _sign_in(options: "DashboardOptions") -> "tuple[SignIn, str]":
    """Return the access control, and the token to show: a generated one if there must be one."""
    from ccpipe.dashboard.sign_in import SignIn, is_loopback, read_address

    sign_in = SignIn(options)
    if not sign_in.is_open or is_loopback(read_address("dashboard.listen", options.listen)[0]):
        return sign_in, ""
    path = _generated_token()
    token = read_secret("token", str(path))
    return SignIn(msgspec.structs.replace(options, token_file=str(path))), token


def _generated_token() -> Path:
    path = state_directory() / "dashboard.token"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_private(path, secrets.token_urlsafe(24))
    return path
