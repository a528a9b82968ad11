"""The subjects that ``tail`` subscribes to, and what they carry."""

import pytest

from ccpipe.cli.tail.listening import Listening, listen_to
from ccpipe.config import Bus, Site
from ccpipe.errors import UsageError


def test_subjects_follow_kinds_and_clusters() -> None:
    """Named clusters have subjects of their own; a pattern, or a flat subject, needs the tag."""
    site = Site(cluster="x")

    def found(*kinds: str, clusters: list[str]) -> Listening:
        return listen_to(site, kinds=kinds, clusters=clusters, subjects=[])

    assert found("log", clusters=[]) == Listening(["*.log.*"], [])
    assert found("log", clusters=["a", "b.c"]) == Listening(
        ["a.log.*", "b%2Ec.log.*"], ["a.log.*", "b%2Ec.log.*"]
    )
    assert found("log", clusters=["a", "b*"]) == Listening(["*.log.*"], [])
    assert found("metric", "other", clusters=[]).patterns == ["*.metrics", "*.metrics.*"]
    assert len(found(clusters=[]).patterns) == 7
    site = Site(cluster="x", bus=Bus(subjects={"log": "hpc-nats"}))
    assert found("log", clusters=["a"]) == Listening(["hpc-nats"], [])


@pytest.mark.parametrize("subject", ["", "a..b", ".a", "a b"])
def test_what_is_no_subject_is_refused(subject: str) -> None:
    """A mistake in a subject would otherwise be a long silence."""
    with pytest.raises(UsageError, match="not a subject"):
        listen_to(Site(), kinds=[], clusters=[], subjects=[subject])
