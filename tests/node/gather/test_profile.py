"""Profiles: selection, intervals and life cycle."""

import contextlib
import os
import pwd
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ccpipe.errors import CreateError, UsageError
from ccpipe.formats.slurm_profile.reader import Profile, open_profile
from ccpipe.node.gather.profile import (
    ProfileGather,
    ProfileGatherError,
    SeriesSelection,
    Step,
    parse_frequencies,
    parse_selection,
)

USER = pwd.getpwuid(os.getuid()).pw_name
STEP = Step(job=17, step="0", node="c1", user=USER, profile=SeriesSelection.ALL)


@pytest.fixture
def gather(tmp_path: Path) -> Iterator[ProfileGather]:
    found = ProfileGather()
    found.init()
    found.conf_set({"ProfileHDF5Dir": str(tmp_path)})
    yield found
    found.fini()


@contextlib.contextmanager
def read_file(gather: ProfileGather) -> Iterator[Profile]:
    assert gather.path is not None
    gather.node_step_end()
    with open_profile(gather.path) as profile:
        yield profile


def rows(profile: Profile, series: str) -> list[tuple[int | float, ...]]:
    [table] = [table for table in profile.tables if table.series == series]
    return [tuple(row) for row in table.read().tolist()]


def test_gather_accepts_calls_of_first_generation(gather: ProfileGather, tmp_path: Path) -> None:
    """Samples are added by the type of their series, also under the document's names."""
    gather.node_step_start(STEP)
    gather.task_start(0)
    now = time.time()
    gather.add_sample_data(SeriesSelection.ENERGY, {"watts": 200}, now)
    gather.add_sample_data(SeriesSelection.ENERGY, {"watts": 210}, now + 1)
    gather.add_sample_data(SeriesSelection.TASK, {"RSS": 5, "CPUTime": 0.5}, now, task=0)
    gather.task_end(1234)
    gather.node_step_end()
    with open_profile(tmp_path / USER / "17_0_c1.h5") as profile:
        assert profile.closed
        assert [row[2] for row in rows(profile, "Energy")] == [200, 210]
        assert rows(profile, "Tasks") == [(0, int(now), 0.5, 5)]
        [node_step] = profile.node_steps
        assert (node_step.node, node_step.tasks, node_step.step) == ("c1", 1, "0")


def test_gather_accepts_calls_of_second_generation(gather: ProfileGather) -> None:
    """Datasets have numbers and the caller's fields; values are in order or by name."""
    gather.node_step_start(STEP)
    power = gather.create_dataset("Energy", -1, [("GPU0Power", int), ("GPU1Power", int)])
    tasks = gather.create_group("Tasks")
    first = gather.create_dataset("4", tasks, [("CPUTime", float)])
    gather.add_sample_data(power, [5, 6], 1795170874)
    gather.add_sample_data(power, {"GPU1Power": 7}, 1795170875)
    gather.add_sample_data(first, (0.25,), 1795170876)
    card = gather.create_dataset("card-0", gather.create_group("Cards"), [("Power", int)])
    gather.add_sample_data(card, [300], 1795170876)
    with read_file(gather) as profile:
        energy = rows(profile, "Energy")
        assert energy[0][1:] == (1795170874, 5, 6)
        assert energy[1][3] == 7
        assert rows(profile, "Tasks")[0][2] == 0.25
        assert rows(profile, "Cards")[0][2] == 300
        assert {table.task for table in profile.tables} == {None, "4", "card-0"}


@pytest.mark.parametrize(
    ("asked", "default", "is_active"),
    [
        (SeriesSelection.NOT_SET, "none", False),
        (SeriesSelection.NOT_SET, "task", True),
        (SeriesSelection.NONE, "all", False),
        (SeriesSelection.TASK, "none", True),
        (SeriesSelection.ENERGY, "task", False),
    ],
)
def test_selection_of_step_overrides_default(
    gather: ProfileGather, tmp_path: Path, asked: SeriesSelection, default: str, is_active: bool
) -> None:
    """Without a selected series there is no file; other series are ignored."""
    gather.conf_set({"profilehdf5default": default})
    gather.node_step_start(Step(job=1, step="batch", node="c1", user=USER, profile=asked))
    assert gather.is_active(SeriesSelection.TASK) is is_active
    gather.add_sample_data(SeriesSelection.TASK, {"RSS": 5}, task=0)
    has_file = gather.is_active()
    gather.node_step_end()
    assert gather.is_active() is False
    files = list(tmp_path.rglob("*.h5"))
    assert bool(files) is has_file
    if files:
        assert files[0].name == "1_batch_c1.h5"
        with open_profile(files[0]) as profile:
            assert bool(profile.tables) is is_active


def test_samples_after_end_are_dropped(gather: ProfileGather) -> None:
    """As in Slurm, whose timers may be late; other calls without a step fail."""
    gather.node_step_start(STEP)
    number = gather.create_dataset("Energy", -1, [("Power", int)])
    gather.node_step_end()
    gather.add_sample_data(number, [5])
    gather.add_sample_data(SeriesSelection.ENERGY, {"Power": 5})
    for call in (gather.node_step_end, lambda: gather.task_start(0), lambda: gather.task_end(1)):
        with pytest.raises(ProfileGatherError):
            call()


def test_invalid_calls_raise(gather: ProfileGather) -> None:
    gather.node_step_start(STEP)
    with pytest.raises(ProfileGatherError, match="still runs"):
        gather.node_step_start(STEP)
    number = gather.create_dataset("Energy", -1, [("Power", int)])
    tasks = gather.create_group("Tasks")
    for call, reason in (
        (lambda: gather.add_sample_data(99, [1]), "unknown dataset 99"),
        (lambda: gather.add_sample_data(-1, [1]), "unknown dataset -1"),
        (lambda: gather.add_sample_data(number, [1, 2]), "2 values, not 1"),
        (lambda: gather.add_sample_data(number, [-5]), "not a number from 0"),
        (lambda: gather.add_sample_data(SeriesSelection.TASK, {"RSS": 1}), "have numbers"),
        (lambda: gather.add_sample_data(SeriesSelection.ENERGY, {"RSS": 1}), "Energy"),
        (lambda: gather.create_dataset("x", 7, [("a", int)]), "unknown group 7"),
        (lambda: gather.create_dataset("a/b", tasks, [("a", int)]), "'a/b' cannot name a series"),
        (lambda: gather.create_dataset("Energy", -1, [("Power", int)]), "already"),
    ):
        with pytest.raises(ProfileGatherError, match=reason):
            call()
    gather.add_sample_data(number, [7])
    with read_file(gather) as profile:
        assert len(rows(profile, "Energy")) == 1


def test_options_are_accepted_under_both_names(tmp_path: Path) -> None:
    gather = ProfileGather()
    assert "ProfileHDF5Dir" in gather.conf_options()
    assert "ProfileDefaultProfile" in gather.conf_options()
    gather.conf_set({"PROFILEDIR": str(tmp_path), "ProfileDefaultProfile": "Energy"})
    assert gather.conf_get().dir == tmp_path
    assert gather.conf_get().default == SeriesSelection.ENERGY
    with pytest.raises(ProfileGatherError, match="ProfileDirectory"):
        gather.conf_set({"ProfileDirectory": "x"})
    with pytest.raises(ProfileGatherError, match="ProfileHDF5Default"):
        gather.conf_set({"ProfileHDF5Default": "everything"})
    gather.conf_set({"ProfileHDF5Dir": "/proc/nothing"})
    with pytest.raises(CreateError, match="/proc/nothing"):
        gather.node_step_start(STEP)
    assert not gather.is_active()


def test_series_are_sampled_at_interval_unless_suspended(gather: ProfileGather) -> None:
    """A missing reading adds no sample; a series that is not profiled is not read."""
    gather.node_step_start(
        Step(job=1, step="0", node="c1", user=USER, profile=SeriesSelection.ENERGY)
    )
    readings = iter([None, 1, 2, *[3] * 10_000])
    enough, others = threading.Event(), list[int]()

    def power() -> dict[str, int | float | None] | None:
        value = next(readings)
        if value == 3:
            enough.set()
        return None if value is None else {"Power": value}

    gather.sample_every(0.02, SeriesSelection.ENERGY, power)
    gather.sample_every(0.02, SeriesSelection.NETWORK, lambda: others.append(1))
    assert enough.wait(20)
    gather.suspend()
    time.sleep(0.1)
    rest = len(list(readings))
    assert rest > 9000
    gather.resume()
    with read_file(gather) as profile:
        assert [row[2] for row in rows(profile, "Energy")][:3] == [1, 2, 3]
    assert not others


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # Python 3.12: that is the point
def test_forked_child_does_not_touch_file(gather: ProfileGather) -> None:
    gather.node_step_start(STEP)
    gather.add_sample_data(SeriesSelection.ENERGY, {"Power": 5})
    pid = os.fork()
    if not pid:
        try:
            gather.child_forked()
            gather.add_sample_data(SeriesSelection.ENERGY, {"Power": 99})
            gather.fini()
        finally:
            os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    gather.add_sample_data(SeriesSelection.ENERGY, {"Power": 6})
    with read_file(gather) as profile:
        assert [row[2] for row in rows(profile, "Energy")] == [5, 6]


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
def test_selection_is_parsed_from_list(text: str, expected: SeriesSelection) -> None:
    assert parse_selection(text) == expected


def test_selection_has_bits_of_slurm() -> None:
    assert [int(one) for one in SeriesSelection] == [1, 2, 4, 8, 16]
    assert int(SeriesSelection.ALL) == 0xFFFFFFFF


def test_series_is_active_only_when_selected() -> None:
    task = SeriesSelection.TASK
    assert task.includes(SeriesSelection.TASK)
    assert task.includes(SeriesSelection.NOT_SET)
    assert not task.includes(SeriesSelection.ENERGY)
    assert SeriesSelection.ALL.includes(SeriesSelection.ENERGY)
    for nothing in (SeriesSelection.NONE, SeriesSelection.NOT_SET):
        assert not nothing.includes(SeriesSelection.NOT_SET)
        assert not nothing.includes(SeriesSelection.TASK)


def test_frequencies_are_parsed_by_series() -> None:
    """A number alone is for tasks; 0 disables; lustre and filesystem are the same."""
    assert parse_frequencies("30") == {"task": 30}
    assert parse_frequencies("task=0.5, energy=0,lustre=10") == {
        "task": 0.5, "energy": 0, "filesystem": 10,
    }  # fmt: skip
    assert parse_frequencies("") == {}


@pytest.mark.parametrize("text", ["tsk=1", "task=x", "task=-1", "task=", "1s", "task=nan"])
def test_invalid_frequency_is_usage_error(text: str) -> None:
    with pytest.raises(UsageError):
        parse_frequencies(text)


def test_misspelt_series_gets_suggestion() -> None:
    with pytest.raises(UsageError, match="did you mean 'energy'"):
        parse_selection("enrgy")
