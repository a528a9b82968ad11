"""The options of ``tail``: what they mean, and what excludes each other."""

import time
from datetime import datetime

import pytest

from ccpipe.cli.tail.options import LINE_KINDS, Options, point_in_time
from ccpipe.errors import UsageError


def test_a_node_list_is_expanded_and_a_pattern_is_not() -> None:
    """As Slurm's users write nodes, and as shells do."""
    assert Options(node=["n[1-3,07]", "gpu1"]).nodes() == ["n1", "n2", "n3", "n07", "gpu1"]
    assert Options(node=["n[12]*", "f?", "x[ab]"]).nodes() == ["n[12]*", "f?", "x[ab]"]
    with pytest.raises(UsageError, match=r"--node n\[1-"):
        Options(node=["n[1-"]).nodes()


def test_a_begin_is_a_duration_or_a_point_in_time() -> None:
    """A time without a zone is local; one without a date is of today."""
    begin = Options(last="10m").begin
    assert begin is not None
    assert 590 < time.time() - begin / 1e9 < 700
    assert Options(since="2025-02-20T14:30:00Z").begin == 1740061800 * 10**9
    midnight = datetime.combine(datetime.now().date(), datetime.min.time())  # noqa: DTZ005
    assert point_in_time("00:00") == midnight.timestamp()
    assert Options(all_=True).begin is None
    with pytest.raises(UsageError, match="--since: not a time: 'soon'"):
        point_in_time("soon")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (Options(last="1m", all_=True), "exclude each other"),
        (Options(follow=False), "--no-follow needs"),
        (Options(kind=["dead"], output="csv"), "--kind sonar and dead"),
    ],
)
def test_what_does_not_fit_together_is_refused(options: Options, says: str) -> None:
    """Before anything is connected."""
    with pytest.raises(UsageError, match=says):
        options.check()


def test_a_format_that_has_no_room_for_envelopes_leaves_them_out() -> None:
    """Line protocol and CSV hold messages only."""
    assert Options(output="line").kinds == list(LINE_KINDS)
    assert {"sonar", "dead"} <= set(Options(output="line", raw=True).kinds)
    assert {"sonar", "dead"} <= set(Options(output="json").kinds)
