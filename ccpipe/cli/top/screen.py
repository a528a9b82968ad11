"""The screen of ``ccpipe top``: one table at a time, redrawn every second."""

import asyncio
import contextlib
import os
import signal
from collections.abc import Iterator
from typing import Any, ClassVar, NamedTuple

from ccpipe.cli.top.layout import Column, TopRow, drawn_cells, fitting, select_rows
from ccpipe.cli.top.tables import DEFAULT_SORT, DETAILS, VIEWS, SelectedRow, describe, keys_of
from ccpipe.errors import MissingExtra
from ccpipe.live.feed import LiveFeed
from ccpipe.terminal import plural

try:
    from rich.text import Text
    from textual.app import App, ComposeResult
    from textual.binding import Binding, BindingType
    from textual.events import Resize
    from textual.widgets import DataTable, Footer, Input, Static
except ImportError:
    raise MissingExtra("textual", "top") from None

MAX_ROWS = 500
"""Maximum number of rows drawn; a filter finds the others."""
STYLES = dict.fromkeys(
    ("silent", "down", "failed", "node_fail", "out_of_memory", "timeout"), "bold red"
)
STYLES |= {"idle": "dim", "drain": "yellow", "cancelled": "yellow", "preempted": "yellow"}
"""Styles of states of nodes and jobs."""
SCROLLBAR = 2
"""Width of the scrollbar."""


class TrailStep(NamedTuple):
    """What was shown before the details of a row."""

    view: str
    origin: SelectedRow | None
    words: str
    cursor: int


class Top(App[None]):
    """Live status of clusters."""

    CSS = """
    Screen { layout: vertical; }
    #status { height: 1; }
    #filter { display: none; height: 1; border: none; }
    DataTable { height: 1fr; }
    App:nocolor DataTable > .datatable--cursor { text-style: reverse; }
    """
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        *(Binding(str(n), f"show('{name}')", name) for n, name in enumerate(VIEWS, 1)),
        Binding("s", "sort", "sort"),
        Binding("r", "reverse", "rev"),
        Binding("slash", "filter", "find"),
        Binding("escape", "clear", "back", key_display="esc"),
        Binding("q", "quit", "quit"),
        # its default only tells to press another key
        Binding("ctrl+c", "quit", "quit", show=False, priority=True),
    ]

    def __init__(self, feed: LiveFeed, *, interval: float = 1.0) -> None:
        """Show the state that `feed` updates, redrawn every `interval` seconds.

        With ``NO_COLOR`` in the environment only bold and reversed text stand out.
        """
        super().__init__(ansi_color=True if os.environ.get("NO_COLOR") else None)
        self.feed = feed
        self.interval = interval
        self.view = "clusters"
        self.sort = dict(DEFAULT_SORT)
        self.reverse = False
        self.words = ""
        self.origin: SelectedRow | None = None
        """The row whose details are shown."""
        self.failure: Exception | None = None
        self._trail: list[TrailStep] = []
        self._feeding: asyncio.Task[None] | None = None
        self._keys: list[str] = []
        self._columns: list[int] = []
        self._widths: list[int] = []

    @contextlib.contextmanager
    def exits_on_signals(self) -> Iterator[None]:
        """Restore the terminal at SIGTERM, and when it is closed."""
        loop, numbers = asyncio.get_running_loop(), (signal.SIGTERM, signal.SIGHUP)
        for number in numbers:
            loop.add_signal_handler(number, self.exit)
        try:
            yield
        finally:
            for number in numbers:
                loop.remove_signal_handler(number)

    def compose(self) -> ComposeResult:
        yield Static(id="status", markup=False)
        yield DataTable(cursor_type="row", zebra_stripes=False)
        yield Input(id="filter", placeholder="filter: words that a row must contain")
        yield Footer(compact=True)

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
        """Show a whole table."""
        self._trail.clear()
        self._show(name, None)

    def _show(self, name: str, origin: SelectedRow | None, cursor: int = 0) -> None:
        self.view, self.origin = name, origin
        self._columns, self._keys = [], []
        self._widths = [len(column.head) for column in VIEWS[name].columns]
        self.draw()
        self.call_after_refresh(self.query_one(DataTable).move_cursor, row=cursor)

    def _head(self, number: int, column: Column) -> Text:
        style = "bold reverse" if number == self.sort[self.view] else "bold"
        return Text(column.head.upper(), style=style, justify=column.justify)

    def on_resize(self, _: Resize) -> None:
        if self._widths:  # the first one precedes on_mount()
            self.draw()

    def action_sort(self) -> None:
        """Sort by the next column that is shown."""
        place = self._columns.index(self.sort[self.view]) + 1
        self.sort[self.view] = self._columns[place % len(self._columns)]
        self._columns = []
        self.draw()

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
        elif self._trail:
            step = self._trail.pop()
            self.words = step.words
            self._show(step.view, step.origin, step.cursor)
        else:
            self.action_show("clusters")

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        """Show the details of a row: the nodes of a cluster or job, the jobs of a node."""
        if self.view not in DETAILS or not 0 <= event.cursor_row < len(self._keys):
            return
        self._trail.append(TrailStep(self.view, self.origin, self.words, event.cursor_row))
        self.words = ""
        origin = SelectedRow(self.view, self._keys[event.cursor_row])
        self._show(DETAILS[self.view], origin)

    def draw(self) -> None:
        """Draw the table and the status line; only changes are sent to the terminal."""
        if not (self.query(DataTable) and self.query("#status")):
            return  # it is ending
        view, state = VIEWS[self.view], self.feed.state
        rows = select_rows(
            view.columns,
            view.rows(state),
            sort=self.sort[self.view],
            reverse=self.reverse,
            words=self.words.split(),
            maximum=MAX_ROWS,
            keys=None if self.origin is None else keys_of(state, self.origin),
        )
        table: DataTable[Any] = self.query_one(DataTable)
        with self.batch_update():
            self._fill(table, rows)
        self._keys = [row.key for row in rows]
        self.query_one("#status", Static).update(self.status())

    def _fill(self, table: DataTable[Any], rows: list[TopRow]) -> None:
        columns = VIEWS[self.view].columns
        cells = [drawn_cells(columns, row) for row in rows]
        self._choose_columns(table, cells)
        while table.row_count > len(rows):
            table.remove_row(table.coordinate_to_cell_key((table.row_count - 1, 0)).row_key)  # type: ignore[arg-type]
        for number, texts in enumerate(cells):
            shown = [
                Text(texts[at], STYLES.get(texts[at], ""), justify=columns[at].justify)
                for at in self._columns
            ]
            if number >= table.row_count:
                table.add_row(*shown)
                continue
            for place, cell in enumerate(shown):
                if table.get_cell_at((number, place)) != cell:  # type: ignore[arg-type]
                    table.update_cell_at((number, place), cell, update_width=True)  # type: ignore[arg-type]

    def _choose_columns(self, table: DataTable[Any], cells: list[list[str]]) -> None:
        """Give the table the columns that fit, which change if it becomes wider or narrower."""
        columns = VIEWS[self.view].columns
        for texts in cells:
            self._widths = list(map(max, self._widths, map(len, texts)))
        names = {texts[0] for texts in cells}
        is_mixed = columns[0].head == "cluster" and len(names) > 1
        keep = {self.sort[self.view]} | ({0} if is_mixed else set())
        shown = fitting(columns, self._widths, self.size.width - SCROLLBAR, keep)
        if shown == self._columns and len(table.columns) == len(shown):
            return
        cursor = table.cursor_row
        table.clear(columns=True)
        self._columns = shown
        for number in shown:
            table.add_column(self._head(number, columns[number]), key=str(number))
        if self._keys:  # the same table as before
            self.call_after_refresh(table.move_cursor, row=cursor)

    def status(self) -> str:
        state = self.feed.state
        lines = sum(cluster.rate for cluster in state.clusters.values())
        about = self.view if self.origin is None else describe(state, self.origin)
        parts = [
            about,
            plural(len(state.nodes.nodes), "node"),
            plural(len(state.jobs.running), "job"),
            *([f"{waiting} waiting"] if (waiting := state.jobs.pending.counts().total()) else []),
            f"{lines:.0f} lines/s",
        ]
        if not self.feed.bus.is_connected:
            parts.insert(0, "not connected")
        if self.words:
            parts.insert(1, f"filter: {self.words}")
        if not self._keys:
            has_details = self.words or self.origin is not None
            parts.insert(1, f"no {self.view}" + (" match" if has_details else " yet"))
        if rejected := state.health.rejected:
            parts.append(f"{plural(rejected, 'line')} could not be read")
        return "  ".join([*parts, self.feed.bus.url])
