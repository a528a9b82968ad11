"""Records are checked against the subject of their message."""

from typing import NamedTuple

import pytest

from ccpipe.bus.codecs.identity import SubjectCheckingCodec
from ccpipe.bus.codecs.line import LineCodec
from ccpipe.bus.codecs.sonar import SonarCodec
from ccpipe.bus.subjects import Subjects
from ccpipe.config import Bus, Site
from ccpipe.errors import ConfigError
from ccpipe.formats.lineprotocol import Lines
from ccpipe.formats.sonar.envelopes import Envelopes

TEMPLATES: dict[str, str | dict[str, str]] = {
    "metrics": "{cluster}.metrics.{hostname}",
    "events": {"*": "{cluster}.events.{name}.{hostname}", "job": "{cluster}.events.job"},
    "sonar": "{cluster}.sonar.{name}.{hostname}",
}
SUBJECTS = Subjects.of(Site(cluster="fox.no", hostname="b", bus=Bus(subjects=TEMPLATES)))
GOOD = b"m,cluster=fox.no,hostname=n1,type=node value=1 1740027951\n"


class Message(NamedTuple):
    """A message as a broker hands it over."""

    subject: str
    payload: bytes
    arrival: int = 1740027951 * 10**9


def decoded(*messages: Message) -> tuple[list[str], list[str]]:
    held = SubjectCheckingCodec(LineCodec(), SUBJECTS, ["metrics", "events"])
    batches = [records for records, _ in held.decode(messages) if isinstance(records, Lines)]
    return (
        [record.hostname for records in batches for record in records],
        [bad.reason for records in batches for bad in records.rejected],
    )


def test_codec_accepts_records_of_node_in_subject() -> None:
    """Records that match their subject pass, even if the cluster's name contains a dot."""
    assert decoded(Message("fox%2Eno.metrics.n1", GOOD)) == (["n1"], [])
    event = b'nodestate,cluster=fox.no,hostname=n1,type=node event="up" 1740027951\n'
    assert decoded(Message("fox%2Eno.events.nodestate.n1", event)) == (["n1"], [])


@pytest.mark.parametrize(
    "line",
    [
        GOOD.replace(b"hostname=n1", b"hostname=n2"),
        GOOD.replace(b"cluster=fox.no", b"cluster=fritz"),
        GOOD.replace(b"hostname=n1,", b""),
        b'nodestate,cluster=fox.no,hostname=n1,type=node event="down" 1740027951\n',
        b'job,cluster=fox.no,hostname=n1,function=start event="{}" 1740027951\n',
    ],
)
def test_codec_rejects_lines_that_do_not_match_their_subject(line: bytes) -> None:
    """Only the line of another node, cluster or kind of message is rejected, with the reason."""
    accepted, reasons = decoded(Message("fox%2Eno.metrics.n1", GOOD + line))
    assert accepted == ["n1"]
    [reason] = reasons
    assert reason.startswith("arrived on fox%2Eno.metrics.n1, but belongs on")


def test_codec_keeps_original_line_for_dead_letter() -> None:
    """With its number in the payload, along with lines that cannot be decoded."""
    line = GOOD.replace(b"n1", b"n2")
    held = SubjectCheckingCodec(LineCodec(), SUBJECTS, ["metrics"])
    message = Message("fox%2Eno.metrics.n1", GOOD + line + b"broken value=\n")
    [(batch, count)] = list(held.decode([message]))
    assert count == 1
    assert [(bad.line, bad.original) for bad in batch.rejected] == [
        (3, b"broken value="),
        (2, line.rstrip()),
    ]


def test_codec_rejects_envelopes_that_do_not_match_their_subject() -> None:
    text = (
        b'{"meta":{"producer":"sonar","version":"0.17.0"},"data":{"type":"sample","attributes":'
        b'{"time":"2026-01-01T00:00:00Z","cluster":"fox.no","node":"n1"}}}'
    )
    held = SubjectCheckingCodec(SonarCodec(), SUBJECTS, ["sonar"])
    messages = [Message(f"fox%2Eno.sonar.sample.{node}", text) for node in ("n1", "n2")]
    good, bad = [batch for batch, _ in held.decode(messages)]
    assert (len(good), good.rejected) == (1, [])
    assert isinstance(bad, Envelopes)
    assert len(bad) == 0
    assert "belongs on fox%2Eno.sonar.sample.n1" in bad.rejected[0].reason


def test_codec_requires_subjects_with_hostname() -> None:
    with pytest.raises(ConfigError, match=r"needs \{hostname\} in bus.subjects.metrics"):
        SubjectCheckingCodec(LineCodec(), Subjects.of(Site(cluster="fritz")), ["metrics"])
