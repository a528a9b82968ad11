"""``ccpipe.cli.config.explain``: the changes of each rule, and the resulting records."""

import json
from typing import Any

import pytest

from ccpipe.cli.config.explain import explain, passed
from ccpipe.formats.lineprotocol import Lines, RejectedLine, decode, to_lines
from ccpipe.message import metric
from ccpipe.pipeline import HoldingTranslator, Translator
from ccpipe.translate.rules.aggregate import Aggregate
from ccpipe.translate.rules.convert import Convert
from ccpipe.translate.rules.relabel import Rename, Tag
from ccpipe.translate.rules.select import Drop

TAGS = {"hostname": "a", "type": "node"}
SAMPLE = [
    metric("cpu_load", 0.5, time=1740027951 * 10**9, tags=TAGS),
    metric("load_five", 0.25, time=1740027951 * 10**9, tags=TAGS),
    metric("mem_used", 2000, time=1740027951 * 10**9, tags={**TAGS, "unit": "kB"}),
]
RULES: dict[str, Translator[Any, Any]] = {
    "drop": Drop(names=["load_*"]),
    "rename": Rename(names={"cpu_load": "load"}),
    "convert": Convert(to="MB", names=["mem_*"]),
    "aggregate": Aggregate(function="count", of="hwthread", per="node"),
}


def printed(capsys: pytest.CaptureFixture[str], output: Any, records: Any = None) -> str:
    explain(
        to_lines(SAMPLE if records is None else records), list(RULES.values()), list(RULES), output
    )
    return capsys.readouterr().out


def test_explanation_of_lines_is_in_comments(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """So that the output is line protocol with only the lines that would be published."""
    text = printed(capsys, "line")
    assert text == (
        "# rule 1 drop: 3 in, 2 out: 1 dropped\n"
        "#   - load_five,hostname=a,type=node\n"
        "# rule 2 rename: 2 in, 2 out: 1 changed\n"
        "#   cpu_load,hostname=a,type=node -> load,hostname=a,type=node\n"
        "# rule 3 convert: 2 in, 2 out: 1 changed\n"
        "#   mem_used,hostname=a,type=node,unit=kB 2000 -> "
        "mem_used,hostname=a,type=node,unit=MB 2.0\n"
        "# rule 4 aggregate: 2 in, 2 out: nothing changed\n"
        "load,hostname=a,type=node value=0.5 1740027951\n"
        "mem_used,hostname=a,type=node,unit=MB value=2.0 1740027951\n"
    )
    lines = decode(text.encode())
    assert lines.rejected == []
    assert [message.name for message in lines] == ["load", "mem_used"]


def test_columns_are_explained_like_messages(capsys: pytest.CaptureFixture[str]) -> None:
    """Decoded samples pass through the same rules."""
    payload = printed(capsys, "line").encode()
    lines = decode(payload)
    explain(lines, [], [], "line")
    head, _, rest = capsys.readouterr().out.partition("\n")
    assert head == "# no rules: [[publish.translate]] is empty"
    assert rest.encode() == b"".join(
        line for line in payload.splitlines(keepends=True) if not line.startswith(b"#")
    )


def test_json_has_every_change(capsys: pytest.CaptureFixture[str]) -> None:
    """One object, with every change of every rule, for scripts."""
    reported = json.loads(printed(capsys, "json"))
    assert [(rule["use"], rule["reached"], rule["left"]) for rule in reported["rules"]] == [
        ("drop", 3, 2), ("rename", 2, 2), ("convert", 2, 2), ("aggregate", 2, 2),
    ]  # fmt: skip
    assert reported["rules"][0]["dropped"] == ["load_five,hostname=a,type=node"]
    assert reported["rules"][1]["changed"] == [
        {"before": "cpu_load,hostname=a,type=node", "after": "load,hostname=a,type=node"}
    ]
    left = [(record["name"], record["value"]) for record in reported["records"]]
    assert left == [("load", 0.5), ("mem_used", 2.0)]


def test_table_follows_explanation(capsys: pytest.CaptureFixture[str]) -> None:
    """As ``--dry-run -o table`` shows a sample."""
    text, _, table = printed(capsys, "table").partition("\n\n")
    assert text.startswith("rule 1 drop: 3 in, 2 out")
    shown = [line.split()[2:4] for line in table.splitlines()[1:]]
    assert shown == [["load", "0.5"], ["mem_used", "2"]]


def test_long_list_of_changes_is_shortened_except_in_json(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A node with 256 hardware threads would scroll the rest off the screen."""
    records = [metric(f"m{number}", 1.0, time=1, tags={}) for number in range(20)]
    explain(to_lines(records), [Tag(add={"zone": "z"})], ["tag"], "line")
    comments = [line for line in capsys.readouterr().out.splitlines() if line.startswith("#")]
    assert comments[0] == "# rule 1 tag: 20 in, 20 out: 20 changed"
    assert comments[-1] == "#   and 12 more"
    assert len(comments) == 10
    (rule,), _ = passed(to_lines(records), [Tag(add={"zone": "z"})], ["tag"])
    assert len(rule.changed) == 20


def test_added_records_are_shown() -> None:
    """An aggregate keeps the existing records and adds to them."""
    parts = [
        metric("ipc", 1.0, time=1, tags={"type": "hwthread", "type-id": str(n)}) for n in (0, 1)
    ]
    rules = [Aggregate(function="mean", of="hwthread", per="node")]
    (rule,), left = passed(to_lines(parts), rules, ["aggregate"])
    assert (rule.added, rule.dropped, rule.changed) == (["ipc,type=node"], [], [])
    assert len(left) == 3


def test_merged_series_are_reported_once() -> None:
    """By the rule that removed the distinguishing tag: the store would keep one of them."""
    disks = [metric("io", n, time=1, tags={"stype-id": name}) for n, name in enumerate("ab")]
    rules = [Tag(add={"cluster": "c"}), Tag(remove=["stype-id"]), Tag(add={"zone": "z"})]
    reported, _ = passed(to_lines(disks), rules, ["tag"] * 3)
    assert [rule.doubled for rule in reported] == [[], ["io,cluster=c"], []]


class Window(HoldingTranslator[Lines, Lines]):
    """A translator that buffers records until the end, and rejects some."""

    takes = gives = Lines

    def __init__(self) -> None:
        self.held = Lines()

    def feed(self, records: Lines) -> Lines:
        self.held = records[1:]
        return to_lines([], [RejectedLine(0, 0, 0, "no number", records.original(0))])

    def oldest_held(self) -> int | None:
        return 1 if len(self.held) else None

    def flush(self) -> Lines:
        return self.held


def test_held_records_are_flushed_and_rejected_ones_reported(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """As at the end of a pipe."""
    explain(to_lines(SAMPLE), [Window(), RULES["rename"]], ["window", "rename"], "line")
    text = capsys.readouterr().out
    assert "# rule 1 window: 3 in, 2 out: 1 dropped, 1 refused\n" in text
    assert "#   ! cpu_load,hostname=a,type=node 0.5: no number\n" in text
    assert "# rule 2 rename: 2 in, 2 out: nothing changed\n" in text


def test_control_characters_are_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    """Names and tags are chosen by peers."""
    tags = {"x": "\x9b31m"}
    explain(to_lines([metric("m", 1.0, time=1, tags=tags)]), [Drop(names=["m"])], ["drop"], "line")
    assert "\x9b" not in capsys.readouterr().out
