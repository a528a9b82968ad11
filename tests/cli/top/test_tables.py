"""The tables: order, filter, and cells that fit and do no harm."""

import json
import math
import time
from typing import Any

import pytest

from ccpipe.bus.nats.protocol.frames import Delivery, write_header
from ccpipe.cli.top import tables
from ccpipe.cli.top.layout import (
    BAR_CELLS,
    MAX_TEXT,
    Column,
    TopRow,
    age,
    bar,
    drawn_cells,
    fitting,
    printable_cells,
    select_rows,
)
from ccpipe.cli.top.tables import (
    DEFAULT_SORT,
    ENDED_SECONDS,
    VIEWS,
    SelectedRow,
    as_json,
    describe,
    keys_of,
)
from ccpipe.formats.lineprotocol import decode
from ccpipe.live.node import FIRST_INTERVAL, SILENT_INTERVALS
from ccpipe.live.state import LiveState
from tests.cli.top.messages import NODE, job_event, made_of

LINES = b"".join(
    f"load_one,cluster={cluster},hostname=n{number},type=node value={number} 1740027951\n".encode()
    for cluster in ("fritz", "alex")
    for number in (2, 10, 1)
)


@pytest.fixture
def state() -> LiveState:
    """Give two clusters of three nodes, and one node without load."""
    return made_of(LINES, b"x,cluster=fritz,hostname=odd,type=node value=1 1740027951\n")


def table(state: LiveState, name: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = as_json(state)[name]
    return rows


def shown(state: LiveState, *words: str, reverse: bool = False, sort: int = 3) -> list[str]:
    view = VIEWS["nodes"]
    rows = select_rows(
        view.columns, view.rows(state), sort=sort, reverse=reverse, words=words, maximum=100
    )  # fmt: skip
    return [row.key for row in rows]


def test_table_sorts_by_load_with_unknown_last(state: LiveState) -> None:
    """In either direction."""
    assert shown(state)[:2] == ["fritz/n10", "alex/n10"]
    assert shown(state, reverse=True)[:2] == ["fritz/n1", "alex/n1"]
    assert shown(state)[-1] == shown(state, reverse=True)[-1]


def test_table_sorts_by_name(state: LiveState) -> None:
    """From a to z; reversed from z to a."""
    assert shown(state, sort=0)[0].startswith("alex")
    assert shown(state, sort=0, reverse=True)[0].startswith("fritz")


def test_filter_matches_rows_with_all_words(state: LiveState) -> None:
    """Case-insensitive."""
    assert shown(state, "ALEX", "n1") == ["alex/n10", "alex/n1"]
    assert shown(state, "alex", "fritz") == []


def test_every_table_has_printable_cell_for_each_column(
    state: LiveState,
) -> None:
    """Also for unknown values."""
    header = write_header({"Ccpipe-Reason": "\x1b[2J"})
    state.feed_dead(Delivery("fritz.dead", b"x", header), 1.0)
    for name, view in VIEWS.items():
        assert 0 <= DEFAULT_SORT[name] < len(view.columns)
        for row in view.rows(state):
            assert all(cell.isprintable() for cell in printable_cells(view.columns, row))
            assert all(cell.isprintable() for cell in drawn_cells(view.columns, row))


def test_json_has_all_tables_and_null_for_unknown_values(state: LiveState) -> None:
    """With exact values, for programs."""
    read = json.loads(json.dumps(as_json(state), allow_nan=False))
    assert len(read["nodes"]) == 7
    assert {node["load"] for node in read["nodes"]} == {1, 2, 10, None}
    assert read["clusters"][0]["lines_per_s"] == 0
    assert not math.isnan(read["rejected"])


def test_metrics_set_cells_of_node_and_gpus() -> None:
    """In bytes, percent and watts, for any unit of the sender; hardware threads do not."""
    state = made_of(NODE)
    one, other = table(state, "nodes")
    assert (one["load"], one["cpu"], one["memory"], one["mem"]) == (3.5, 25.0, 1e6, 0.05)
    assert (one["gpus"], one["gpu"], other["cpu"]) == (1, 80.0, 25.0)
    assert [*table(state, "gpus")[0].values()] == ["fritz", "e1", "0", 80, 5e6, 25.0, None, None]
    [cluster] = table(state, "clusters")
    assert (cluster["cpu"], cluster["mem"], cluster["gpu"]) == (25.0, 0.05, 80.0)


def test_table_sums_interfaces_and_sockets() -> None:
    """If a node sends no value of its own."""
    parts = (
        b"net_bytes_in_bw,cluster=c,hostname=n,type=node,stype=network,stype-id=eth0 value=1 1\n"
        b"net_bytes_in_bw,cluster=c,hostname=n,type=node,stype=network,stype-id=ib0 value=4 1\n"
        b"cpu_power,cluster=c,hostname=n,type=socket,type-id=0 value=100 1\n"
        b"cpu_power,cluster=c,hostname=n,type=socket,type-id=1 value=110 1\n"
    )
    [row] = table(made_of(parts), "nodes")
    assert (row["net_in"], row["power"]) == (5, 210)
    whole = b"cpu_power,cluster=c,hostname=n,type=node value=300 1\n"
    [row] = table(made_of(parts, whole), "nodes")
    assert row["power"] == 300


def test_job_is_listed_until_some_time_after_its_stop() -> None:
    """With values of its nodes; a node that runs it and has sent nothing is listed, too."""
    start = {"user": "ann", "startTime": 900, "resources": [{"hostname": "e1"}, {"hostname": "e9"}]}
    state = made_of(NODE, job_event("start_job", **start))
    [job] = table(state, "jobs")
    assert (job["user"], job["nodes"], job["load"], job["memory"]) == ("ann", 2, 3.5, 1e6)
    nodes = {row["node"]: (row["jobs"], row["age"] is None) for row in table(state, "nodes")}
    assert nodes == {"e1": (1, False), "e2": (0, False), "e9": (1, True)}
    [cluster] = table(state, "clusters")
    assert (cluster["nodes"], cluster["jobs"]) == (3, 1)
    state.feed(decode(job_event("stop_job", jobState="failed", stopTime=960)), time.time())
    [job] = table(state, "jobs")
    assert (job["state"], job["elapsed"]) == ("failed", 60)
    assert job["load"] is None  # its nodes are no longer its own
    assert [row["jobs"] for row in table(state, "clusters")] == [0]
    state.jobs.ended = {key: at - ENDED_SECONDS - 1 for key, at in state.jobs.ended.items()}
    assert table(state, "jobs") == []


def test_rerun_job_is_listed_once() -> None:
    """Its latest run."""
    runs = [job_event("start_job", startTime=start) for start in (200, 100)]
    [job] = table(made_of(*runs), "jobs")
    assert time.time() - job["elapsed"] == pytest.approx(200, abs=60)


def test_node_becomes_silent_after_three_intervals() -> None:
    """It has failed, or its publisher has; its last values stay."""
    state = made_of(NODE)
    assert [row["silent"] for row in table(state, "clusters")] == [0]
    state.tick(time.time() + SILENT_INTERVALS * FIRST_INTERVAL + 1)
    assert [row["silent"] for row in table(state, "clusters")] == [2]
    state.nodes.forget()
    assert table(state, "nodes")[0]["load"] == 3.5


def test_node_that_has_sent_nothing_is_silent_after_some_time() -> None:
    """Not in the first seconds, when the stored start of its job has arrived and no metrics."""
    start = job_event("start_job", user="ann", startTime=900, resources=[{"hostname": "e9"}])
    state, now = made_of(start), time.time()
    state.tick(now)
    assert [row["silent"] for row in table(state, "clusters")] == [0]
    assert [row["state"] for row in table(state, "nodes") if row["node"] == "e9"] == ["busy"]
    state.tick(now + tables.UNSEEN_SECONDS + 1)
    assert [row["state"] for row in table(state, "nodes") if row["node"] == "e9"] == ["silent"]


def test_node_has_state_and_reason_of_scheduler() -> None:
    """Where it gets no jobs; a busy or idle node has neither."""
    rows = [{"hostname": "e1", "states": ["idle", "drain"]}, {"hostname": "e2", "states": ["idle"]}]
    reasons = [{"hostname": "e1", "reason": "DIMM"}, {"hostname": "e2", "reason": "old"}]
    events = [
        (f"{name},cluster=fritz,function={name},hostname=e1 event="
         + json.dumps(json.dumps({"cluster": "fritz", "nodes": nodes})) + " 1740027951\n").encode()
        for name, nodes in (("nodestate", rows), ("nodereason", reasons))
    ]  # fmt: skip
    nodes = table(made_of(NODE, *events), "nodes")
    assert [(row["state"], row["reason"]) for row in nodes] == [("drain", "DIMM"), ("idle", "")]


def test_details_of_row_are_its_nodes_or_jobs() -> None:
    """Exactly these: no other whose name contains the words."""
    nodes = [{"hostname": "e1"}, {"hostname": "e2"}, {"hostname": "e9"}]
    other = NODE.replace(b"=e1", b"=e11").replace(b"=fritz", b"=fritz2")
    state = made_of(NODE, other, job_event("start_job", user="ann", startTime=9, resources=nodes))

    def details(view: str, key: str) -> set[str]:
        return keys_of(state, SelectedRow(view, key))

    assert details("jobs", "fritz/7") == {"fritz/e1", "fritz/e2", "fritz/e9"}
    assert details("nodes", "fritz/e1") == {"fritz/7"}
    assert details("nodes", "fritz2/e11") == set()
    assert details("gpus", "fritz/e1/0") == {"fritz/e1"}
    assert details("clusters", "fritz") == {"fritz/e1", "fritz/e2", "fritz/e9"}
    assert details("jobs", "fritz/8") == set()
    assert "job 7: ann, running, " in describe(state, SelectedRow("jobs", "fritz/7"))
    assert describe(state, SelectedRow("nodes", "fritz/e1")) == "node fritz/e1"


def test_id_of_job_is_shown_in_full() -> None:
    """Slurm's have eight digits."""
    state = made_of(job_event("start_job", jobId=12345678, user="ann", resources=[]))
    view = VIEWS["jobs"]
    assert [printable_cells(view.columns, row)[1] for row in view.rows(state)] == ["12345678"]


@pytest.mark.parametrize(
    ("percent", "expected"),
    [
        (0, "        0%"),
        (52, "██▋    52%"),
        (100, "█████ 100%"),
        (250, "█████ 250%"),
        (math.nan, "-"),
    ],
)
def test_bar_has_length_and_number(percent: float, expected: str) -> None:
    """A full one for 100 % and more."""
    assert bar(percent) == expected
    assert len(bar(percent)) in (1, BAR_CELLS + 5)


def test_narrow_screen_leaves_out_columns_of_highest_rank() -> None:
    """Never the column by which rows are sorted, nor one of rank 0."""
    columns = [Column(head, rank=rank) for head, rank in (("a", 0), ("b", 2), ("c", 1), ("d", 2))]
    widths = [8, 8, 8, 8]
    assert fitting(columns, widths, 40, ()) == [0, 1, 2, 3]
    assert fitting(columns, widths, 39, ()) == [0, 1, 2]
    assert fitting(columns, widths, 39, (3,)) == [0, 2, 3]
    assert fitting(columns, widths, 1, ()) == [0]


def test_long_text_does_not_widen_screen() -> None:
    """It is cut, except in the last column; the table without a screen has all of it."""
    columns, row = [Column("a", descending=False), Column("b")], TopRow("x", ("n" * 99, "m" * 99))
    assert [len(cell) for cell in drawn_cells(columns, row)] == [MAX_TEXT, 99]
    assert [len(cell) for cell in printable_cells(columns, row)] == [99, 99]


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [(0, "0s"), (59.9, "59s"), (61, "1m01s"), (3660, "1h01m"), (90000, "1d01h"), (-5, "0s")],
)
def test_ages_have_at_most_two_units(seconds: float, expected: str) -> None:
    assert age(seconds) == expected
