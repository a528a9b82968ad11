"""Partitions of a stream: the broker maps all messages of one subject to the same one.

A stream of N partitions stores what is published on ``fritz.metrics.n0001`` under
``p8.3.fritz.metrics.n0001``: the number of partitions, the index of this one, which is a hash of
the subject, and the subject. Each partition has its own consumer, read by one process at a time,
so that the order of each subject is preserved however many processes share the work.
"""

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from ccpipe.bus.subjects import Subjects

FORMER = "ccpipe.partitions"
"""Metadata of a stream: the numbers of partitions that it has had, in order."""

_DESTINATION = re.compile(r"p(\d+)\.\{\{partition\((\d+)\)\}\}\.>")

_STORED = re.compile(r"^p\d+\.\d+\.")


def transform(count: int) -> dict[str, str] | None:
    """Return the ``subject_transform`` of a stream of `count` partitions; None for one."""
    return {"src": ">", "dest": f"p{count}.{{{{partition({count})}}}}.>"} if count > 1 else None


def partitions_of(config: Mapping[str, Any]) -> int:
    """Return the number of partitions of a stream, from its configuration on the broker."""
    upstream = [config.get("mirror") or {}, *(config.get("sources") or ())]
    transforms = [each for one in upstream for each in one.get("subject_transforms") or ()]
    for each in [config.get("subject_transform") or {}, *transforms]:
        if found := _DESTINATION.fullmatch(each.get("dest", "")):
            return int(found[1])
    return 1


def former_counts(config: Mapping[str, Any]) -> list[int]:
    """Return the numbers of partitions that a stream has had, in order; 1 is among them."""
    noted = (config.get("metadata") or {}).get(FORMER, "").split(",")
    return [int(each) for each in noted if each.isdecimal()] or [1]


def all_counts(config: Mapping[str, Any]) -> list[int]:
    """Return the numbers of partitions under which a stream may still store messages."""
    now = partitions_of(config)
    return [*(count for count in former_counts(config) if count != now), now]


def published(subject: str) -> str:
    return _STORED.sub("", subject)


def stored(config: Mapping[str, Any], pattern: str) -> list[str]:
    """Return a subject pattern as a stream stores it: with each count that it has had."""
    counts = all_counts(config)
    return [f"p{count}.*.{pattern}" if count > 1 else pattern for count in counts]


def with_former(config: Mapping[str, Any]) -> dict[str, str]:
    """Return the metadata of a stream whose number of partitions is about to change."""
    counts = ",".join(map(str, all_counts(config)))
    return {**(config.get("metadata") or {}), FORMER: counts}


def undivided(subjects: Subjects) -> dict[str, str]:
    """Return the subjects shared by all nodes, by their configuration key.

    All messages of one subject are in one partition, which one bridge reads.
    """
    return {
        key: subjects.templates[key]
        for key in ("metrics", "sonar")
        if "{hostname}" not in subjects.templates[key]
    }


class StreamPartition(NamedTuple):
    """A partition of a stream, as read by a bridge with some durable name."""

    durable: str
    number: int = 0
    total: int = 1

    @classmethod
    def of_consumer(cls, name: str, durable: str) -> "StreamPartition | None":
        """Return the partition that a consumer reads; None for any other consumer."""
        if name == durable:
            return cls(durable)
        found = re.fullmatch(re.escape(durable) + r"-(\d+)-of-(\d+)", name)
        return cls(durable, int(found[1]), int(found[2])) if found else None

    @classmethod
    def durable_of(cls, consumer: str) -> str:
        """Return the durable name of a partition's consumer; empty for any other consumer."""
        found = re.fullmatch(r"(.+)-\d+-of-\d+", consumer)
        return found[1] if found else ""

    @property
    def consumer(self) -> str:
        """Name of its consumer: the durable name itself if the stream has one partition."""
        return self.durable if self.total == 1 else f"{self.durable}-{self.number}-of-{self.total}"

    @property
    def prefix(self) -> str:
        return "" if self.total == 1 else f"p{self.total}.{self.number}."

    def stored(self, patterns: list[str]) -> list[str]:
        return [self.prefix + pattern for pattern in patterns]


def partitions(durable: str, total: int) -> list[StreamPartition]:
    return [StreamPartition(durable, number, total) for number in range(total)]
