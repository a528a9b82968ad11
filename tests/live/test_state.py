"""The latest events, rates, errors and dead letters."""

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.bus.nats.protocol.frames import Delivery, write_header
from ccpipe.formats.lineprotocol import decode
from ccpipe.live import state as module
from ccpipe.live.state import MAX_ERRORS, MAX_TEXT, WINDOW, Health, Journal, LiveState
from ccpipe.message import log, metric

NODE = b"""\
load_one,cluster=fritz,hostname=e1,type=node value=3.5 1740027951
num_cpus,cluster=fritz,hostname=e1,type=node value=4 1740027951
load_one,cluster=fritz,hostname=e2,type=node value=1 1740027951
"""
START = json.dumps(json.dumps({"jobId": 7, "startTime": 900, "resources": [{"hostname": "e1"}]}))
JOB = f"job,cluster=fritz,function=start_job,hostname=e1 event={START} 1740027951\n".encode()


def feed(state: LiveState, payload: bytes, now: float = 1000.0) -> None:
    state.feed(decode(payload, lenient=True), now)


def dead(reason: str, id_: str = "") -> Delivery:
    headers = {"Ccpipe-Reason": reason, "Ccpipe-Origin": "fritz.metrics", "Nats-Msg-Id": id_}
    return Delivery("fritz.dead", b"x", write_header({k: v for k, v in headers.items() if v}))


def test_rates_are_means_over_several_seconds() -> None:
    """Simultaneous publishers every two seconds make a flat line, not a sawtooth."""
    health = Health()
    for second in range(3 * WINDOW):
        if second % 2 == 0:
            health.lines += 200
            health.payloads += 2
            health.bytes += 20_000
        health.tick(1000.0 + second)
    assert {tuple(rate[1:]) for rate in list(health.rates)[WINDOW:]} == {(1.0, 100.0, 10_000.0)}
    assert health.lines_per_second == 100.0


def test_clock_set_back_makes_no_rate() -> None:
    """Nor does the first call."""
    health = Health()
    health.tick(1000.0)
    health.lines = 10
    health.tick(999.0)
    assert (list(health.rates), health.lines_per_second) == ([], 0.0)
    health.tick(1001.0)
    assert health.lines_per_second == 10.0


def test_rates_of_nodes_and_clusters_cover_last_seconds() -> None:
    """Of 10 to 20 s: where publishers send every 5 s they neither jump nor reach back further."""
    state = LiveState()
    now = 1000.0
    for _ in range(20):
        feed(state, NODE, now)
        for _ in range(5):
            now += 1
            state.tick(now)
    assert state.clusters["fritz"].rate == pytest.approx(3 / 5, rel=0.35)
    assert state.nodes.nodes["fritz", "e1"].rate == pytest.approx(2 / 5, rel=0.35)
    for _ in range(25):
        now += 1
        state.tick(now)
    assert state.clusters["fritz"].rate == 0


def test_lines_and_bytes_are_counted_by_cluster() -> None:
    """Payloads that are decoded together are divided by their lines."""
    state = LiveState()
    feed(state, NODE + NODE.replace(b"fritz", b"alex0"))
    assert {name: (each.lines, each.bytes) for name, each in state.clusters.items()} == {
        "fritz": (3, len(NODE)), "alex0": (3, len(NODE)),
    }  # fmt: skip
    assert (state.health.payloads, state.health.lines) == (1, 6)
    assert state.health.bytes == 2 * len(NODE)


def test_errors_are_dead_letters_and_error_logs() -> None:
    """Counted by cluster; the latest are kept."""
    state = LiveState()
    feed(state, b'kernel,cluster=fritz,hostname=e1,loglevel=err log="oops" 1740027951\n')
    feed(state, b'kernel,cluster=fritz,hostname=e1,loglevel=info log="fine" 1740027951\n')
    feed(state, b"broken\n")
    state.feed_dead(dead("no number"), 1000.0)
    assert [error[1:] for error in state.errors] == [
        ("e1 kernel", "oops"), ("dead letter from fritz.metrics", "no number"),
    ]  # fmt: skip
    cluster = state.clusters["fritz"]
    assert (cluster.errors, cluster.dead, state.health.rejected) == (1, 1, 1)
    for _ in range(MAX_ERRORS):
        state.feed_dead(dead("again"), 1000.0)
    assert len(state.errors) == MAX_ERRORS


def test_repeated_dead_letter_counts_once() -> None:
    """By its message id."""
    state = LiveState()
    for _ in range(2):
        state.feed_dead(dead("why", "1"), 1000.0)
    assert (state.health.dead_count, state.clusters["fritz"].dead, len(state.errors)) == (1, 1, 1)


def test_number_of_clusters_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Made-up names are counted together."""
    monkeypatch.setattr(module, "MAX_CLUSTERS", 2)
    state = LiveState()
    for number in range(5):
        feed(state, f"m,cluster=c{number},hostname=n value=1 1740027951\n".encode())
    assert {name: each.lines for name, each in state.clusters.items()} == {
        "c0": 1, "c1": 1, module.OTHERS: 3,
    }  # fmt: skip


def test_texts_beyond_bound_are_dropped_and_counted() -> None:
    state = LiveState()
    flood = "".join(
        f'c,hostname=n,loglevel=info,type=node log="{number}" 1740027951\n' for number in range(50)
    )
    assert state.feed(decode(flood.encode()), 1000.0, max_texts=20) == 50
    assert state.journal.count == 20
    assert state.health.dropped == 30


def test_stored_texts_are_not_traffic() -> None:
    """They make jobs and entries, but neither rates nor nodes."""
    state = LiveState()
    state.feed_texts(decode(JOB), 1000.0)
    assert (len(state.jobs.running), state.journal.count) == (1, 1)
    assert (state.health.lines, state.clusters, state.nodes.nodes) == (0, {}, {})


def test_journal_returns_entries_after_number() -> None:
    journal = Journal()
    for number in range(5):
        journal.feed(log("ccpipe", "info", f"text {number}", time=10**9, tags={}), 0.0)
    assert [entry.text for entry in journal.after(3)] == ["text 3", "text 4"]
    assert [entry.text for entry in journal.after(0, 1)] == ["text 4"]
    assert journal.after(5) == []


def test_journal_is_bounded() -> None:
    """The oldest entries are dropped, and long texts are cut."""
    journal = Journal(maximum=3)
    for number in range(9):
        journal.feed(log("c", "warn", f"{number}" * 9000, time=1, tags={"hostname": "n"}), 0.0)
    assert [entry.number for entry in journal.after(0)] == [7, 8, 9]
    assert {len(entry.text) for entry in journal.entries} == {MAX_TEXT}


def test_journal_ignores_metrics() -> None:
    """Only events and log messages are kept."""
    journal = Journal()
    journal.feed(metric("load", 1.0, time=1, tags={}), 0.0)
    assert journal.count == 0


PAYLOADS = st.lists(
    st.binary(max_size=200) | st.sampled_from([*NODE.splitlines(), JOB.strip()]), max_size=8
)


@given(PAYLOADS)
def test_state_accepts_any_payload(pieces: list[bytes]) -> None:
    state = LiveState()
    feed(state, b"\n".join(pieces))
    state.feed_dead(Delivery("\xff", b"\xff", b"\xff"), time.time())
    state.tick(1001.0)


@given(st.permutations([*NODE.splitlines(keepends=True), JOB]), st.integers(1, 3))
def test_state_is_independent_of_message_order(pieces: list[bytes], times: int) -> None:
    """And of repetition: publishers send unacknowledged messages again."""
    state = LiveState()
    for piece in pieces * times:
        feed(state, piece)
    state.tick(1000.0)
    assert [node.id for node in state.nodes.in_order()] == [("fritz", "e1"), ("fritz", "e2")]
    assert list(state.nodes.column("load_one")) == [3.5, 1]
    assert [job.id for job in state.jobs.on("fritz", "e1")] == [7]
    assert state.clusters["fritz"].lines == 4 * times
