"""The filters of ``tail``: which lines, envelopes and dead letters are shown."""

import json

import pytest

from ccpipe.cli.tail.options import Options
from ccpipe.cli.tail.selection import MessageFilter
from ccpipe.formats.lineprotocol import decode

LINES = decode(
    b"""\
load,cluster=fox,hostname=e1 value=1 1740027951
load,cluster=elk,hostname=e2 value=2 1740027951
temp,hostname=e3 value=3 1740027951
power,cluster=fox,hostname=e9,stype=job,stype-id=7 value=4 1740027951
"""
)


def names(options: Options, *, subject: str = "fox.metrics", of_cluster: str = "") -> list[str]:
    """Return the nodes of the lines that are shown."""
    selection = MessageFilter(options, [of_cluster] if of_cluster else [])
    return [message.hostname for message in selection.lines(subject, LINES)]


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        (Options(), ["e1", "e2", "e3", "e9"]),
        (Options(node=["e[1-2]"]), ["e1", "e2"]),
        (Options(name=["t*"], node=["e*"]), ["e3"]),
        (Options(cluster=["fox"]), ["e1", "e9"]),
        (Options(kind=["event"]), []),
        (Options(kind=["sonar"]), []),
        (Options(job=[7]), ["e9"]),
    ],
)
def test_each_sort_of_filter_must_match(options: Options, shown: list[str]) -> None:
    """One of each sort is enough; a job's lines are those with its tag and of its nodes."""
    assert names(options) == shown


def test_lines_on_a_clusters_own_subject_need_no_tag() -> None:
    """The subject says whose they are."""
    assert names(Options(cluster=["fox"]), of_cluster="fox.metrics") == ["e1", "e2", "e3", "e9"]
    assert names(Options(cluster=["fox"]), of_cluster="fox.log.*") == ["e1", "e9"]


def test_a_jobs_nodes_are_shown_from_its_start_on() -> None:
    """The start is shown too; before it nobody knows where the job runs."""
    selection = MessageFilter(Options(job=[5]), [])
    text = json.dumps(json.dumps({"jobId": 5, "resources": [{"hostname": "e3"}]}))
    start = f"job,cluster=fox,function=start_job,hostname=a event={text} 1740027951\n"
    assert len(selection.lines("fox.metrics", LINES)) == 0
    assert len(selection.lines("fox.events.job", decode(start.encode()))) == 1
    assert [m.hostname for m in selection.lines("fox.metrics", LINES)] == ["e3"]


def envelope(**attributes: object) -> dict[str, object]:
    """Return a sample."""
    return {"data": {"type": "sample", "attributes": attributes}}


def test_envelopes_are_filtered_by_cluster_node_type_and_job() -> None:
    """As lines are."""
    sample = envelope(cluster="fox", node="e1", jobs=[{"job": 7}])

    def shows(options: Options) -> bool:
        return MessageFilter(options, []).envelope(sample)

    assert shows(Options())
    assert shows(Options(node=["e1"], name=["sam*"], cluster=["f?x"], job=[7]))
    for wrong in (
        Options(node=["e2"]), Options(name=["job"]), Options(cluster=["elk"]), Options(job=[8]),
        Options(kind=["metric"]),
    ):  # fmt: skip
        assert not shows(wrong)


def test_dead_letters_have_neither_nodes_nor_names() -> None:
    """Where one is asked for, none can match."""
    assert MessageFilter(Options(), []).has_dead_letters
    assert MessageFilter(Options(kind=["dead"], cluster=["fox"]), []).has_dead_letters
    for options in (Options(node=["e1"]), Options(name=["x"]), Options(kind=["metric"])):
        assert not MessageFilter(options, []).has_dead_letters


def test_it_says_whether_anything_may_be_left_out() -> None:
    """For the hint why nothing is shown."""
    assert not MessageFilter(Options(), []).is_filtered
    assert MessageFilter(Options(job=[1]), []).is_filtered
