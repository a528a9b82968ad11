"""The subjects that ``tail`` subscribes to."""

import re
from collections.abc import Sequence

import msgspec

from ccpipe.bus.subjects import Subjects, matches
from ccpipe.config import Site
from ccpipe.errors import UsageError

CATEGORIES = {
    "metric": "metrics",
    "other": "metrics",
    "event": "events",
    "log": "log",
    "control": "control",
    "sonar": "sonar",
    "dead": "dead",
}
"""The subjects that carry each kind."""


class Listening(msgspec.Struct, frozen=True):
    """The subscribed subjects."""

    patterns: list[str]
    of_cluster: list[str]
    """Subjects of a requested cluster: their messages need no tag ``cluster``."""


def listen_to(
    site: Site, *, kinds: Sequence[str], clusters: Sequence[str], subjects: Sequence[str]
) -> Listening:
    """Choose subjects: those given, else those of the requested kinds and clusters.

    Raises
    ------
    UsageError
        for an invalid subject.

    """
    for subject in subjects:
        tokens = subject.split(".")
        if not all(tokens) or ">" in tokens[:-1] or any(map(str.isspace, subject)):
            raise UsageError(f"not a subject: {subject!r}")
    if subjects:
        return Listening(list(dict.fromkeys(subjects)), [])
    known = Subjects.of(site)
    categories = list(dict.fromkeys(CATEGORIES[kind] for kind in kinds or CATEGORIES))
    everywhere = known.patterns(categories, "*")
    if not clusters or any(re.search(r"[*?\[]", cluster) for cluster in clusters):
        return Listening(everywhere, [])
    named = [known.patterns(categories, cluster) for cluster in clusters]
    patterns = list(dict.fromkeys(pattern for group in named for pattern in group))
    return Listening(patterns, [p for p in patterns if p not in everywhere])


class SubjectKinds:
    """Determines the type of a payload from its subject and first byte."""

    def __init__(self, site: Site) -> None:
        """Take the site's subjects."""
        known = Subjects.of(site)
        self._dead = known.patterns(["dead"], "*")

    def is_dead(self, subject: str) -> bool:
        """Return whether it is a dead letter."""
        return any(matches(pattern, subject) for pattern in self._dead)

    @staticmethod
    def is_sonar(payload: bytes) -> bool:
        """Return whether it is JSON, which no line starts like."""
        return payload.lstrip()[:1] == b"{"
