"""Paths in Jobanalyzer's tree."""

from datetime import date
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.errors import EncodeError
from ccpipe.formats.sonar import Envelope, SampleAttributes, SampleData, SampleEnvelope
from ccpipe.formats.sonar.file_tree import list_days, list_files, path_of
from tests.formats.sonar.examples import CLUSTER, ERROR, JOBS, SAMPLE, SYSINFO, one


def sample(
    time: str = "2025-04-07T14:17:11+02:00", cluster: str = "fox", node: str = "n1"
) -> Envelope:
    attributes = SampleAttributes(time=time, cluster=cluster, node=node)
    return SampleEnvelope(data=SampleData(attributes=attributes))


@pytest.mark.parametrize(
    ("text", "path"),
    [
        (SAMPLE, "fox.educloud.no/2025/04/07/0+sample-gpu-1.fox.json"),
        (SYSINFO, "mlx.hpc.uio.no/2025/02/28/0+sysinfo-ml1.json"),
        (JOBS, "fox.educloud.no/2025/03/11/0+job-slurm.json"),
        (CLUSTER, "fox.educloud.no/2025/04/01/0+cluzter-slurm.json"),
    ],
)
def test_path_follows_type_node_and_day(text: str, path: str) -> None:
    """In the directory of the day in UTC, not in local time."""
    assert str(path_of(one(text))) == path
    assert str(path_of(one(text), cluster_directories=False)) == path.partition("/")[2]


@pytest.mark.parametrize(
    ("envelope", "reason"),
    [
        (one(ERROR), "of errors"),
        (sample(time=""), "time: "),
        (sample(time="noon"), "time: "),
        (sample(time="0001-01-01T00:00:00+23:00"), "years 1 to 9999"),
        (sample(cluster=".."), "cluster: "),
        (sample(cluster=""), "cluster: "),
        (sample(cluster="a/b"), "cluster: "),
        (sample(node="/../../../etc/cron"), "node: "),
        (sample(node=""), "node: "),
        (sample(node="a\0b"), "node: "),
        (sample(node="a\x1b[31m"), "node: "),
        (sample(node="ä" * 200), "node: "),
    ],
)
def test_path_is_rejected_for_invalid_envelope(envelope: Envelope, reason: str) -> None:
    """The error names the field; no path leaves the tree."""
    with pytest.raises(EncodeError, match=reason):
        path_of(envelope)


@given(st.text(), st.text())
def test_path_stays_in_tree_for_any_name(cluster: str, node: str) -> None:
    """It has five parts below the root."""
    try:
        path = path_of(sample(cluster=cluster, node=node))
    except EncodeError:
        return
    assert len(path.parts) == 5
    assert ".." not in path.parts
    assert path.parts[0] == cluster


def test_listing_has_only_envelope_files(tmp_path: Path) -> None:
    """Older formats, other files and invalid days are ignored."""
    for name in (
        "fox/2025/02/20/0+sample-n1.json",
        "fox/2025/02/20/0+cluzter-slurm.json",
        "ape/2025/02/20/0+job-slurm.json",
        "fox/2025/02/20/sysinfo-n1.json",
        "fox/2025/02/20/n1.csv",
        "fox/2025/02/30/0+sample-n1.json",
        "fox/2024/12/31/0+sample-n1.json",
        "README",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    days = [date(2024, 12, 31), date(2025, 2, 20)]
    assert list_days(tmp_path) == days
    assert [file.key for file in list_files(tmp_path, days[1])] == [
        "2025-02-20/ape/0+job-slurm.json",
        "2025-02-20/fox/0+cluzter-slurm.json",
        "2025-02-20/fox/0+sample-n1.json",
    ]
    assert list_days(tmp_path / "fox", cluster_directories=False) == days
