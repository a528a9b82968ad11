"""``ccpipe top``: clusters, nodes, jobs and GPUs, live."""

import asyncio
from typing import Annotated, Literal

from cyclopts import Parameter

from ccpipe.cli.console.login import Login
from ccpipe.cli.console.options import seconds
from ccpipe.cli.console.output import print_json, print_table
from ccpipe.cli.top.feed import ModelFeed
from ccpipe.cli.top.model import Model
from ccpipe.cli.top.tables import DEFAULT_SORT, VIEWS, as_json, printable_cells, select_rows
from ccpipe.config import Site
from ccpipe.errors import UnavailableError
from ccpipe.process.signals import stop_signals


async def top(
    *,
    view: Literal["clusters", "nodes", "jobs", "gpus", "errors"] = "clusters",
    once: bool = False,
    for_: Annotated[str, Parameter(name="--for")] = "12s",
    interval: str = "1s",
    output: Annotated[Literal["table", "json"], Parameter(alias="-o")] = "table",
    login: Annotated[Login, Parameter(name="*")] = Login(),  # noqa: B008 - frozen
) -> None:
    """Show live cluster status: nodes, jobs, GPUs, message rates and errors.

    Keys: 1 to 5 select the table, s the sort column, r reverses the order, /
    filters by words, Enter shows the details of a row, Escape goes back, q quits.
    Reads only the bus: metrics, events, logs and dead letters.

    Examples:
      ccpipe top
      ccpipe top --view jobs --interval 5s
      ccpipe top --once -o json --for 15s

    Parameters
    ----------
    view
        Initial table.
    once
        Print what arrived within --for, and exit.
    for_
        How long --once listens, such as 30s.
    interval
        Time between screen updates; increase it for slow connections.
    output
        With --once: the table of --view, or all tables as JSON.
    """
    site = login.site()
    if once:
        await _print(site, view, seconds(for_, "--for") or 0.0, output)
        return
    from ccpipe.cli.top.screen import Top

    model = Model()
    app = Top(ModelFeed(site, model), model, interval=seconds(interval, "--interval") or 1.0)
    app.view = view
    await app.run_async()
    if app.failure is not None:
        raise app.failure


async def _print(site: Site, name: str, wait: float, output: Literal["table", "json"]) -> None:
    model = Model()
    feed = ModelFeed(site, model)
    feeding = asyncio.create_task(feed.run())
    is_connected = False
    try:
        async with stop_signals(wait) as stop:
            stopping = asyncio.create_task(stop.wait())
            await asyncio.wait({feeding, stopping}, return_when=asyncio.FIRST_COMPLETED)
            is_connected = feed.bus.is_connected
            stopping.cancel()
        if feeding.done():
            feeding.result()
    finally:
        feeding.cancel()
        await asyncio.gather(feeding, return_exceptions=True)
    if not is_connected:
        raise UnavailableError(f"no NATS server answered at {feed.bus.url}")
    model.tick()
    if output == "json":
        print_json(as_json(model))
        return
    view = VIEWS[name]
    rows = select_rows(
        view, view.rows(model), sort=DEFAULT_SORT[name], reverse=False, words=(), maximum=10**9
    )
    heads = [column.head for column in view.columns]
    print_table([printable_cells(view, row) for row in rows], heads)
