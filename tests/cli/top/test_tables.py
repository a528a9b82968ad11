"""The tables: order, filter, and cells that fit and do no harm."""

import json
import math

import pytest

from ccpipe.cli.top.model import Model
from ccpipe.cli.top.tables import DEFAULT_SORT, VIEWS, age, as_json, printable_cells, select_rows
from ccpipe.formats.lineprotocol import decode

LINES = b"".join(
    f"load_one,cluster={cluster},hostname=n{number},type=node value={number} 1740027951\n".encode()
    for cluster in ("fritz", "alex")
    for number in (2, 10, 1)
)


@pytest.fixture
def model() -> Model:
    """Give two clusters of three nodes, and one node without load."""
    made = Model()
    made.add_lines(decode(LINES), len(LINES))
    other = b"x,cluster=fritz,hostname=odd,type=node value=1 1740027951\n"
    made.add_lines(decode(other), len(other))
    return made


def shown(model: Model, *words: str, reverse: bool = False, sort: int = 2) -> list[str]:
    """Return the keys of the nodes that are shown."""
    view = VIEWS["nodes"]
    rows = select_rows(
        view, view.rows(model), sort=sort, reverse=reverse, words=words, maximum=100
    )  # fmt: skip
    return [row.key for row in rows]


def test_the_highest_load_comes_first_and_what_is_unknown_last(model: Model) -> None:
    """In either direction."""
    assert shown(model)[:2] == ["fritz/n10", "alex/n10"]
    assert shown(model, reverse=True)[:2] == ["fritz/n1", "alex/n1"]
    assert shown(model)[-1] == shown(model, reverse=True)[-1]


def test_names_are_in_their_order(model: Model) -> None:
    """From a to z; turned round from z to a."""
    assert shown(model, sort=0)[0].startswith("alex")
    assert shown(model, sort=0, reverse=True)[0].startswith("fritz")


def test_a_filter_is_words_that_a_row_holds(model: Model) -> None:
    """All of them, whatever the case."""
    assert shown(model, "ALEX", "n1") == ["alex/n10", "alex/n1"]
    assert shown(model, "alex", "fritz") == []


def test_every_view_has_a_cell_for_each_column_and_no_text_controls_the_terminal(
    model: Model,
) -> None:
    """Also where nothing is known."""
    model.add_dead_letter("fritz", "\x1b[2J", "origin")
    for name, view in VIEWS.items():
        assert 0 <= DEFAULT_SORT[name] < len(view.columns)
        for row in view.rows(model):
            assert all(cell.isprintable() for cell in printable_cells(view, row))


def test_json_has_all_tables_and_no_number_that_is_none(model: Model) -> None:
    """It is for programs: exact values, null for the unknown."""
    read = json.loads(json.dumps(as_json(model), allow_nan=False))
    assert len(read["nodes"]) == 7
    assert {node["load"] for node in read["nodes"]} == {1, 2, 10, None}
    assert read["clusters"][0]["lines_per_s"] == 0
    assert not math.isnan(read["rejected"])


@pytest.mark.parametrize(
    ("seconds", "says"),
    [(0, "0s"), (59.9, "59s"), (61, "1m01s"), (3660, "1h01m"), (90000, "1d01h"), (-5, "0s")],
)
def test_ages_are_short(seconds: float, says: str) -> None:
    """Two units at most."""
    assert age(seconds) == says
