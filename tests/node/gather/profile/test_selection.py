"""What is profiled, and how often."""

import pytest

from ccpipe.errors import UsageError
from ccpipe.node.gather.profile import Selection, parse_frequencies, parse_selection


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("task", Selection.TASK),
        ("Energy,TASK", Selection.ENERGY | Selection.TASK),
        ("filesystem", Selection.LUSTRE),
        ("lustre,network", Selection.LUSTRE | Selection.NETWORK),
        ("all", Selection.ALL),
        ("all,task", Selection.ALL),
        ("task,none", Selection.NONE),
    ],
)
def test_a_selection_is_a_list_of_series(text: str, expected: Selection) -> None:
    """In it none wins, then all."""
    assert parse_selection(text) == expected


def test_the_bits_are_those_of_slurm() -> None:
    """They are stored in its database."""
    assert [int(one) for one in Selection] == [1, 2, 4, 8, 16]
    assert int(Selection.ALL) == 0xFFFFFFFF


def test_nothing_is_active_unless_selected() -> None:
    """NOT_SET asks whether any series is."""
    task = Selection.TASK
    assert task.includes(Selection.TASK)
    assert task.includes(Selection.NOT_SET)
    assert not task.includes(Selection.ENERGY)
    assert Selection.ALL.includes(Selection.ENERGY)
    for nothing in (Selection.NONE, Selection.NOT_SET):
        assert not nothing.includes(Selection.NOT_SET)
        assert not nothing.includes(Selection.TASK)


def test_frequencies_are_seconds_by_series() -> None:
    """A number alone is of tasks; 0 is never; lustre and filesystem are the same."""
    assert parse_frequencies("30") == {"task": 30}
    assert parse_frequencies("task=0.5, energy=0,lustre=10") == {
        "task": 0.5, "energy": 0, "filesystem": 10,
    }  # fmt: skip
    assert parse_frequencies("") == {}


@pytest.mark.parametrize("text", ["tsk=1", "task=x", "task=-1", "task=", "1s", "task=nan"])
def test_what_is_no_frequency_is_a_usage_error(text: str) -> None:
    """It names what is wrong."""
    with pytest.raises(UsageError):
        parse_frequencies(text)


def test_a_misspelt_series_gets_a_suggestion() -> None:
    """The closest one."""
    with pytest.raises(UsageError, match="did you mean 'energy'"):
        parse_selection("enrgy")
