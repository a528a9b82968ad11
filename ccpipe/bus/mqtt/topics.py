"""Conversion between topics and subjects: ``fox/metrics`` and ``fox.metrics``.

A topic level corresponds to a subject token. Names are escaped as in subjects; the characters
``+``, ``#`` and ``$``, which MQTT reserves, are escaped too, so that any cluster name is one
level.
"""

from ccpipe.bus.subjects import escape
from ccpipe.message import Message

_RESERVED = str.maketrans({"+": "%2B", "#": "%23", "$": "%24"})
_WILDCARDS = {"*": "+", ">": "+/#"}  # `>` matches one token or more, `#` also none


def topic_of(subject: str, prefix: str = "") -> str:
    """Return the topic for a subject, below a prefix such as ``hpc/monitoring``."""
    return _below(prefix, subject.replace(".", "/").translate(_RESERVED))


def filter_of(pattern: str, prefix: str = "") -> str:
    """Return the topic filter for a pattern of subjects with NATS's wildcards."""
    levels = (_WILDCARDS.get(token) or topic_of(token) for token in pattern.split("."))
    return _below(prefix, "/".join(levels))


def latest_topic(metric: Message, cluster: str) -> str:
    """Return the topic that holds the latest value of a metric's series.

    ``<cluster>/latest/<hostname>/<metric>``, then ``/<type>/<type-id>`` where the type is not the
    node and ``/<stype>/<stype-id>`` where there is one.
    """
    tags = metric.tags
    levels = [tags.get("cluster") or cluster, "latest", metric.hostname, metric.name]
    for kind in ("type", "stype"):
        if (value := tags.get(kind)) and (kind, value) != ("type", "node"):
            levels += [value, tags.get(f"{kind}-id", "")]
    return "/".join(escape(level).translate(_RESERVED) for level in levels)


def _below(prefix: str, topic: str) -> str:
    return f"{prefix.strip('/')}/{topic}" if prefix else topic
