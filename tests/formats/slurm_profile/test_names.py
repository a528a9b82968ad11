"""Names of files and of jobs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.errors import DataError
from ccpipe.formats.slurm_profile.names import (
    JobSelection,
    NodeStepName,
    parse_file_name,
    parse_jobs,
)
from tests.formats.slurm_profile.samples import NODE_STEPS

steps = st.integers(0, 10**9).map(str) | st.sampled_from(["batch", "interactive", "extern"])
nodes = st.from_regex(r"[a-z0-9][a-z0-9._-]{0,20}", fullmatch=True)


@given(st.integers(0, 2**32 - 1), steps, nodes, st.integers(0, 99))
def test_file_names_round_trip(job: int, step: str, node: str, number: int) -> None:
    name = NodeStepName(job, step, node)
    assert parse_file_name(name.file_name) == name
    assert parse_file_name(name.kept_name(number)) == name
    assert name.kept_name(number).startswith(".")


def test_file_name_parser_reads_real_names() -> None:
    for path in NODE_STEPS:
        job, step, node = path.stem.split("_")
        assert parse_file_name(path.name) == NodeStepName(int(job), step, node)


@pytest.mark.parametrize(
    ("name", "step", "node"),
    [
        ("3_0_my_node.h5", "0", "my_node"),
        ("3_0_a.h5.b.h5", "0", "a.h5.b"),
        ("3_4294967290_c1.h5", "interactive", "c1"),
        ("3_4294967292_c1.h5", "extern", "c1"),
    ],
)
def test_file_name_parser_reads_unusual_names(name: str, step: str, node: str) -> None:
    """Such as node names with underscores or ``.h5``, which sh5util truncates."""
    assert parse_file_name(name) == NodeStepName(3, step, node)


@pytest.mark.parametrize("name", ["job_3.h5", "3_0.h5", "3_x_c1.h5", "a_0_c1.h5", "3_0_c1.hdf5"])
def test_file_name_parser_rejects_other_files(name: str) -> None:
    assert parse_file_name(name) is None


def test_job_parser_reads_lists_of_users() -> None:
    assert parse_jobs("13,13.0, 13_1.batch,17+1,5.extern,5.4294967292") == [
        JobSelection(13, "13"),
        JobSelection(13, "13", "0"),
        JobSelection(13, "13_1", "batch"),
        JobSelection(17, "17+1"),
        JobSelection(5, "5", "extern"),
        JobSelection(5, "5", "extern"),
    ]


@pytest.mark.parametrize("text", ["", "x", "13_", "13.x", "13,,14", "-1", "13_1+2"])
def test_job_parser_rejects_and_quotes_invalid_jobs(text: str) -> None:
    """sh5util takes the leading digits and ignores the rest."""
    with pytest.raises(DataError, match="not a job"):
        parse_jobs(text)


def test_job_selection_requires_raw_id_of_array_task() -> None:
    """sh5util up to 25.11 takes 13_1 for 13, which is another task."""
    (job,) = parse_jobs("13_1")
    with pytest.raises(DataError, match=r"13_1: files are named by raw job ids.*JobIDRaw"):
        job.raw_id()
    assert parse_jobs("13.0")[0].raw_id() == 13
