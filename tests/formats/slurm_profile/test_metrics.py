"""Samples of tables as metrics."""

import pytest

from ccpipe.formats.slurm_metrics import METRICS
from ccpipe.formats.slurm_profile import open_profile
from ccpipe.formats.slurm_profile.metrics import samples
from tests.formats.slurm_profile.samples import NODE_STEPS, START, table_of


def test_a_sample_is_its_fields_with_the_ids_of_its_step() -> None:
    """One list for each row, in its time; units are those of metrics, not of the file."""
    [first, second] = samples([table_of("Tasks", {"RSS": [1, 2]}, step="3")], "fox", "17")
    assert [message.name for message in first] == ["task_mem_rss"]
    assert [first[0].value, second[0].value] == [1024, 2048]
    assert [first[0].time, second[0].time] == [START * 10**9, (START + 1) * 10**9]
    assert first[0].tags["cluster"] == "fox"
    assert first[0].hostname == "c1"
    assert first[0].tags["stype-id"] == "17.3.0"


def test_the_job_of_the_file_comes_before_the_one_that_is_given() -> None:
    """Who names a job says what a file without one is about."""
    path = next(path for path in NODE_STEPS if path.name.endswith("_c1.h5"))
    with open_profile(path) as profile:
        job = profile.tables[0].node_step.job
        found = [m for one in samples(profile.tables, "fox", "999") for m in one]
    assert job is not None
    assert {m.tags["stype-id"].split(".")[0] for m in found if "stype-id" in m.tags} == {str(job)}


@pytest.mark.parametrize("path", NODE_STEPS, ids=lambda path: path.name)
def test_every_sample_of_real_files_is_valid(path: object) -> None:
    """Names are those of the table; each metric keeps the line protocol's rules."""
    names = {name for fields in METRICS.values() for name, _ in fields.values()}
    with open_profile(path) as profile:  # type: ignore[arg-type]
        found = [m for one in samples(profile.tables, "fox", "1") for m in one]
    assert found
    assert {message.name for message in found} <= names
    assert not [problem for message in found for problem in message.problems()]
