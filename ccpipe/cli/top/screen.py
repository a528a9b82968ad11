"""The screen of ``ccpipe top``: one table at a time, redrawn every second."""

import asyncio
from typing import Any, ClassVar

from ccpipe.cli.top.tables import (
    DEFAULT_SORT,
    VIEWS,
    Column,
    listed_jobs,
    printable_cells,
    select_rows,
)
from ccpipe.errors import MissingExtra
from ccpipe.live.feed import LiveFeed
from ccpipe.terminal import plural

try:
    from rich.text import Text
    from textual.app import App, ComposeResult
    from textual.binding import Binding, BindingType
    from textual.widgets import DataTable, Footer, Input, Static
except ImportError:
    raise MissingExtra("textual", "top") from None

MAX_ROWS = 500
"""Maximum number of rows drawn; a filter finds the others."""

DRILL = {"clusters": "nodes", "nodes": "jobs", "jobs": "nodes", "gpus": "nodes"}


class Top(App[None]):
    """Live status of clusters."""

    CSS = """
    Screen { layout: vertical; }
    #status { height: 1; }
    #filter { display: none; height: 1; border: none; }
    DataTable { height: 1fr; }
    """
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        *(Binding(str(n), f"show('{name}')", name) for n, name in enumerate(VIEWS, 1)),
        Binding("s", "sort", "sort"),
        Binding("r", "reverse", "reverse"),
        Binding("slash", "filter", "filter"),
        Binding("escape", "clear", "back"),
        Binding("q", "quit", "quit"),
    ]

    def __init__(self, feed: LiveFeed, *, interval: float = 1.0) -> None:
        """Show the state that `feed` updates, redrawn every `interval` seconds."""
        super().__init__()
        self.feed = feed
        self.interval = interval
        self.view = "clusters"
        self.sort = dict(DEFAULT_SORT)
        self.reverse = False
        self.words = ""
        self.failure: Exception | None = None
        self._feeding: asyncio.Task[None] | None = None
        self._keys: list[str] = []

    def compose(self) -> ComposeResult:
        yield Static(id="status", markup=False)
        yield DataTable(cursor_type="row", zebra_stripes=False)
        yield Input(id="filter", placeholder="filter: words that a row must contain")
        yield Footer()

    async def on_mount(self) -> None:
        self.animation_level = "none"  # each frame would go over the line
        self._feeding = asyncio.create_task(self._receive())
        self._feeding.add_done_callback(self._ended)
        self.action_show(self.view)
        self.set_interval(self.interval, self.draw)
        self.query_one(DataTable).focus()

    async def _receive(self) -> None:
        async with self.feed:
            await self.feed.run(asyncio.Event())

    def _ended(self, task: "asyncio.Task[None]") -> None:
        if not task.cancelled() and isinstance(error := task.exception(), Exception):
            self.failure = error
            self.exit()

    async def on_unmount(self) -> None:
        if self._feeding is not None:
            self._feeding.cancel()
            await asyncio.gather(self._feeding, return_exceptions=True)

    def action_show(self, name: str) -> None:
        self.view = name
        table: DataTable[Any] = self.query_one(DataTable)
        table.clear(columns=True)
        self._keys = []
        for number, column in enumerate(VIEWS[name].columns):
            table.add_column(self._head(number, column), key=str(number))
        self.draw()

    def _head(self, number: int, column: Column) -> Text:
        style = "bold reverse" if number == self.sort[self.view] else "bold"
        return Text(column.head.upper(), style=style, justify=column.justify)

    def action_sort(self) -> None:
        columns = len(VIEWS[self.view].columns)
        self.sort[self.view] = (self.sort[self.view] + 1) % columns
        self.action_show(self.view)

    def action_reverse(self) -> None:
        self.reverse = not self.reverse
        self.draw()

    def action_filter(self) -> None:
        field = self.query_one("#filter", Input)
        field.display = True
        field.value = self.words
        field.focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        self.words = event.value
        self.draw()

    def on_input_submitted(self, _: Input.Submitted) -> None:
        self.query_one("#filter", Input).display = False
        self.query_one(DataTable).focus()

    def action_clear(self) -> None:
        self.query_one("#filter", Input).display = False
        self.query_one(DataTable).focus()
        if self.words:
            self.words = ""
            self.draw()
        else:
            self.action_show("clusters")

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        """Show the details of a row: the nodes of a cluster or job, the jobs of a node."""
        if self.view not in DRILL or not 0 <= event.cursor_row < len(self._keys):
            return
        key = self._keys[event.cursor_row]
        words = key.split("/")
        if self.view == "jobs":
            job = listed_jobs(self.feed.state).get(key)
            nodes = [each.hostname for each in job.nodes] if job is not None else []
            words = words[:1] + (nodes if len(nodes) == 1 else [])
        elif self.view == "nodes":
            words = words[:1]
        elif self.view == "gpus":
            words = words[:2]
        self.words = " ".join(words)
        self.action_show(DRILL[self.view])

    def draw(self) -> None:
        """Draw the table and the status line; only changes are sent to the terminal."""
        if not self.query(DataTable):
            return  # it is ending
        view = VIEWS[self.view]
        rows = select_rows(
            view,
            view.rows(self.feed.state),
            sort=self.sort[self.view],
            reverse=self.reverse,
            words=self.words.split(),
            maximum=MAX_ROWS,
        )
        table: DataTable[Any] = self.query_one(DataTable)
        sides = [column.justify for column in view.columns]
        texts = [
            [
                Text(cell, justify=side)
                for cell, side in zip(printable_cells(view, row), sides, strict=True)
            ]
            for row in rows
        ]
        with self.batch_update():
            while table.row_count > len(rows):
                table.remove_row(table.coordinate_to_cell_key((table.row_count - 1, 0)).row_key)  # type: ignore[arg-type]
            for number, row in enumerate(texts):
                if number >= table.row_count:
                    table.add_row(*row)
                    continue
                for column, cell in enumerate(row):
                    if table.get_cell_at((number, column)) != cell:  # type: ignore[arg-type]
                        table.update_cell_at((number, column), cell, update_width=True)  # type: ignore[arg-type]
        self._keys = [row.key for row in rows]
        self.query_one("#status", Static).update(self.status())

    def status(self) -> str:
        state = self.feed.state
        lines = sum(cluster.rate for cluster in state.clusters.values())
        connected = self.feed.bus.url if self.feed.bus.is_connected else "not connected"
        parts = [
            f"{connected}  {self.view}",
            plural(len(state.nodes.nodes), "node"),
            plural(len(state.jobs.running), "job"),
            f"{lines:.0f} lines/s",
        ]
        if rejected := state.health.rejected:
            parts.append(f"{plural(rejected, 'line')} could not be read")
        if self.words:
            parts.append(f"filter: {self.words}")
        if not self._keys:
            parts.append(f"no {self.view}" + (" match" if self.words else " yet"))
        return "  ".join(parts)
