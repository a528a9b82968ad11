"""What ``lenient`` accepts: lines that real programs write in breach of the grammar, repaired.

Each has a known origin:

- ``event={…}`` and ``control=word`` without quotes: the examples of the ClusterCockpit
  specification itself (*Events*, *Controls*);
- ``name, field=…``, a comma but no tag: cc-lib's ``ToLineProtocol`` for a message without tags;
- ``partition=``, a tag without value: cc-slurm-adapter for a job without partition.
"""

import re

from ccpipe.formats.lineprotocol.grammar import CC

_HEAD = re.compile(
    rb"(?P<name>" + CC.measurement.pattern + rb")"
    rb"(?P<tags>(?:,(?:" + CC.key.pattern + rb")=(?:" + CC.key.pattern + rb")?+)*+),?+ ++"
)
_TAG = re.compile(rb",(?:" + CC.key.pattern + rb")=(" + CC.key.pattern + rb")?+")
_UNQUOTED = re.compile(
    rb"(?P<field>event|control)=(?P<text>\{.*\}|[^\s\",={}]++)(?P<time> ++-?[0-9]++)?+ *+\Z"
)


def repair(line: bytes) -> bytes | None:
    """Return `line` as a grammatical line, or None if it is none of those above."""
    head = _HEAD.match(line)
    if head is None:
        return None
    rest = line[head.end() :]
    unquoted = _UNQUOTED.match(rest)
    if unquoted is not None:
        text = unquoted["text"].replace(b"\\", rb"\\").replace(b'"', rb"\"")
        rest = b'%b="%b"%b' % (unquoted["field"], text, unquoted["time"] or b"")
    tags = _TAG.sub(lambda tag: tag[0] if tag[1] else b"", head["tags"])
    return head["name"] + tags + b" " + rest
