"""``ccpipe dashboard``: the current state of clusters, in a browser."""

import logging
import secrets
import sys
from pathlib import Path

from ccpipe.atomic_file import write_private
from ccpipe.cli.console.options import ExitAfter, SiteOptions, seconds
from ccpipe.config import read_secret, state_directory
from ccpipe.process.signals import stop_signals
from ccpipe.telemetry import Telemetry

log = logging.getLogger(__name__)

DEFAULT_LISTEN = "127.0.0.1:8770"


async def dashboard(
    *,
    listen: str = DEFAULT_LISTEN,
    parquet_dir: Path | None = None,
    token_file: Path | None = None,
    for_: ExitAfter = None,
    where: SiteOptions = SiteOptions(),
) -> None:
    """Show nodes, jobs, events and the pipe's health in a browser.

    The page shows live data from the bus and is read-only. Without options it
    listens on this machine only. Other addresses require a token; without
    --token-file one is generated and included in the printed address.

    Examples:
      ccpipe dashboard
      ccpipe dashboard --parquet-dir /data/metrics --server nats://10.0.0.1:4222
      ccpipe dashboard --listen 0.0.0.0:8770 --token-file dashboard.token

    Parameters
    ----------
    listen
        Address and port to listen on.
    parquet_dir
        Directory of Parquet files written by a bridge, for longer history.
    token_file
        File with the token that browsers must provide.
    """
    from ccpipe.dashboard.history import ParquetHistory
    from ccpipe.dashboard.server import DashboardServer, is_loopback
    from ccpipe.live.feed import LiveFeed

    site = where.site()
    if parquet_dir is not None and not parquet_dir.is_dir():  # noqa: ASYNC240 - before anything runs
        log.warning(
            "no directory %s: longer history will be available once a bridge has written to it",
            parquet_dir,
        )
    parquet = ParquetHistory(parquet_dir) if parquet_dir is not None else None
    token = ""
    if token_file is not None:
        token = read_secret("--token-file", str(token_file))
    elif not is_loopback(listen.rpartition(":")[0].strip("[]") or "127.0.0.1"):
        token = _own_token()
    telemetry = Telemetry()
    telemetry_server = telemetry.serve(site.telemetry.listen) if site.telemetry.listen else None
    try:
        async with (
            stop_signals(seconds(for_, "--for")) as stop,
            LiveFeed(site, telemetry, name="dashboard") as feed,
            DashboardServer(feed, listen=listen, token=token, parquet=parquet) as server,
        ):
            # A journal must not keep the token; a terminal may show it.
            shown = f"#token={token}" if token and sys.stderr.isatty() else ""
            log.info("the dashboard is at %s%s", server.url, shown)
            await feed.run(stop)
    finally:
        if telemetry_server is not None:
            telemetry_server.close()


def _own_token() -> str:
    path = state_directory() / "dashboard.token"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_private(path, secrets.token_urlsafe(24))
    return read_secret("token", str(path))
