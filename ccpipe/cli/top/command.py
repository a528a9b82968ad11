"""``ccpipe top``: clusters, nodes, jobs and GPUs, live."""

import contextlib
import logging
from collections import deque
from collections.abc import Iterator
from typing import Annotated, Literal

from cyclopts import Parameter

from ccpipe.cli.console.options import DURATION, BrokerOptions, seconds
from ccpipe.cli.console.output import print_fitting, print_json
from ccpipe.cli.top.layout import printable_cells, select_rows
from ccpipe.cli.top.tables import DEFAULT_SORT, VIEWS, as_json, new_state
from ccpipe.errors import UnavailableError
from ccpipe.live.feed import LiveFeed, Replay
from ccpipe.process.signals import stop_signals
from ccpipe.telemetry import Telemetry
from ccpipe.terminal import working

STARTS = Replay({"events": (None, None)}, "*")
"""The stored events, among them the starts of jobs that run."""


async def top(
    *,
    view: Literal["clusters", "nodes", "jobs", "gpus", "errors"] = "clusters",
    once: bool = False,
    for_: Annotated[str, DURATION, Parameter(name="--for")] = "12s",
    interval: Annotated[str, DURATION] = "1s",
    output: Annotated[Literal["table", "json"], Parameter(alias="-o")] = "table",
    where: BrokerOptions = BrokerOptions(),
) -> None:
    """Show live cluster status: nodes, jobs, GPUs, message rates and errors.

    Keys: 1 to 5 select the table, s the sort column, r reverses the order, /
    filters by words, Enter shows the details of a row, such as the nodes of a job,
    Escape goes back, q and Ctrl-C quit. Columns that do not fit the screen are left
    out. Reads only the bus: metrics, events, logs and dead letters.

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
    wait = seconds(for_, "--for") or 0.0
    feed = LiveFeed(
        where.site(), Telemetry(), new_state(), name="top", replay=STARTS,
        watches_streams=False, warn=lambda _: None,  # a viewer may not read them
    )  # fmt: skip
    if once:
        await _print(feed, view, wait, output)
        return
    from ccpipe.cli.top.screen import Top

    app = Top(feed, interval=seconds(interval, "--interval") or 1.0)
    app.view = view
    with held_logs(), app.exits_on_signals():
        await app.run_async()
    if app.failure is not None:
        raise app.failure


MAX_RECORDS = 100


class _HeldLogs(logging.Handler):
    """Keeps the latest records."""

    def __init__(self) -> None:
        super().__init__()
        self.records: deque[logging.LogRecord] = deque(maxlen=MAX_RECORDS)

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


@contextlib.contextmanager
def held_logs() -> Iterator[None]:
    """Log nothing while a screen is drawn, and the latest records afterwards."""
    root, held = logging.getLogger(), _HeldLogs()
    handlers, root.handlers = root.handlers, [held]
    try:
        yield
    finally:
        root.handlers = handlers
        for record in held.records:
            root.handle(record)


async def _print(feed: LiveFeed, name: str, wait: float, output: Literal["table", "json"]) -> None:
    async with stop_signals(wait) as stop, feed:
        with working("listening"):
            await feed.run(stop)
        is_connected = feed.bus.is_connected
        feed.update()
    if not is_connected:
        raise UnavailableError(f"no NATS server answered at {feed.bus.url}")
    if output == "json":
        print_json(as_json(feed.state))
        return
    view = VIEWS[name]
    rows = select_rows(
        view.columns, view.rows(feed.state), sort=DEFAULT_SORT[name], reverse=False, words=(),
        maximum=10**9,
    )  # fmt: skip
    heads = [column.head.upper() for column in view.columns]
    print_fitting([printable_cells(view.columns, row) for row in rows], heads)
