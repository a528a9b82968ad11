"""What is profiled, and how often."""

import pytest

from ccpipe.errors import UsageError
from ccpipe.node.gather.profile import SeriesSelection, parse_frequencies, parse_selection


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("task", SeriesSelection.TASK),
        ("Energy,TASK", SeriesSelection.ENERGY | SeriesSelection.TASK),
        ("filesystem", SeriesSelection.LUSTRE),
        ("lustre,network", SeriesSelection.LUSTRE | SeriesSelection.NETWORK),
        ("all", SeriesSelection.ALL),
        ("all,task", SeriesSelection.ALL),
        ("task,none", SeriesSelection.NONE),
    ],
)
def test_a_selection_is_a_list_of_series(text: str, expected: SeriesSelection) -> None:
    assert parse_selection(text) == expected


def test_the_bits_are_those_of_slurm() -> None:
    assert [int(one) for one in SeriesSelection] == [1, 2, 4, 8, 16]
    assert int(SeriesSelection.ALL) == 0xFFFFFFFF


def test_nothing_is_active_unless_selected() -> None:
    task = SeriesSelection.TASK
    assert task.includes(SeriesSelection.TASK)
    assert task.includes(SeriesSelection.NOT_SET)
    assert not task.includes(SeriesSelection.ENERGY)
    assert SeriesSelection.ALL.includes(SeriesSelection.ENERGY)
    for nothing in (SeriesSelection.NONE, SeriesSelection.NOT_SET):
        assert not nothing.includes(SeriesSelection.NOT_SET)
        assert not nothing.includes(SeriesSelection.TASK)


def test_frequencies_are_seconds_by_series() -> None:
    """A number alone is of tasks; 0 is never; lustre and filesystem are the same."""
    assert parse_frequencies("30") == {"task": 30}
    assert parse_frequencies("task=0.5, energy=0,lustre=10") == {
        "task": 0.5, "energy": 0, "filesystem": 10,
    }  # fmt: skip
    assert parse_frequencies("") == {}


@pytest.mark.parametrize("text", ["tsk=1", "task=x", "task=-1", "task=", "1s", "task=nan"])
def test_what_is_no_frequency_is_a_usage_error(text: str) -> None:
    with pytest.raises(UsageError):
        parse_frequencies(text)


def test_a_misspelt_series_gets_a_suggestion() -> None:
    with pytest.raises(UsageError, match="did you mean 'energy'"):
        parse_selection("enrgy")
