"""The tables: order, filter, and cells that fit and do no harm."""

import json
import math
import time
from typing import Any

import pytest

from ccpipe.bus.nats.protocol.frames import Delivery, write_header
from ccpipe.cli.top.tables import (
    DEFAULT_SORT,
    ENDED_SECONDS,
    SILENT_SECONDS,
    VIEWS,
    age,
    as_json,
    printable_cells,
    select_rows,
)
from ccpipe.formats.lineprotocol import decode
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


def shown(state: LiveState, *words: str, reverse: bool = False, sort: int = 2) -> list[str]:
    view = VIEWS["nodes"]
    rows = select_rows(
        view, view.rows(state), sort=sort, reverse=reverse, words=words, maximum=100
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
            assert all(cell.isprintable() for cell in printable_cells(view, row))


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
    assert (one["load"], one["cpu"], one["memory"], one["used"]) == (3.5, 25.0, 1e6, 0.05)
    assert (one["gpus"], other["cpu"]) == (1, 25.0)
    assert [*table(state, "gpus")[0].values()] == ["fritz", "e1", "0", 80, 5e6, None, None]


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
    assert (cluster["nodes"], cluster["silent"], cluster["jobs"]) == (3, 1, 1)
    state.feed(decode(job_event("stop_job", jobState="failed")), time.time())
    assert [row["state"] for row in table(state, "jobs")] == ["failed"]
    assert [row["jobs"] for row in table(state, "clusters")] == [0]
    state.jobs.ended = {key: at - ENDED_SECONDS - 1 for key, at in state.jobs.ended.items()}
    assert table(state, "jobs") == []


def test_rerun_job_is_listed_once() -> None:
    """Its latest run."""
    runs = [job_event("start_job", startTime=start) for start in (200, 100)]
    [job] = table(made_of(*runs), "jobs")
    assert time.time() - job["elapsed"] == pytest.approx(200, abs=60)


def test_node_becomes_silent_after_timeout() -> None:
    """It has failed, or its publisher has; its last values stay."""
    state = made_of(NODE)
    assert [row["silent"] for row in table(state, "clusters")] == [0]
    state.tick(time.time() + SILENT_SECONDS + 1)
    assert [row["silent"] for row in table(state, "clusters")] == [2]
    state.nodes.forget()
    assert table(state, "nodes")[0]["load"] == 3.5


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [(0, "0s"), (59.9, "59s"), (61, "1m01s"), (3660, "1h01m"), (90000, "1d01h"), (-5, "0s")],
)
def test_ages_have_at_most_two_units(seconds: float, expected: str) -> None:
    assert age(seconds) == expected
