"""``docs/node/processing.md`` agrees with the rules."""

import re
import tomllib

import pytest

from ccpipe.cli.config.explain import explain
from ccpipe.config import Publish, to_struct
from ccpipe.formats.lineprotocol import decode
from ccpipe.formats.units import parse_unit
from ccpipe.registry import build, find, options_of
from tests.paths import ROOT

PAGE = (ROOT / "docs/node/processing.md").read_text(encoding="utf-8")
RULES = (
    "select", "drop", "rename", "tag", "convert", "rate", "combine", "aggregate", "time_window",
)  # fmt: skip
TOPOLOGY = [{"hwthread": str(number), "socket": socket} for number, socket in enumerate("001")]
CONTEXT = {"units": {}, "topology": TOPOLOGY}


def section(title: str) -> str:
    found = re.search(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", PAGE, re.DOTALL | re.MULTILINE)
    assert found, title
    return found[1]


def test_example_prints_output_of_page(capsys: pytest.CaptureFixture[str]) -> None:
    """Its configuration, applied to its sample."""
    configuration, sample, output = re.findall(
        r"^```\w*\n(.*?)^```$", section("An example"), re.DOTALL | re.MULTILINE
    )
    publish = to_struct(tomllib.loads(configuration)["publish"], Publish, "docs/node/processing.md")
    translators = [
        build("translators", table, where="page", path=f"publish.translate[{i}]", context=CONTEXT)
        for i, table in enumerate(publish.translate)
    ]
    explain(decode(sample.encode()), translators, [table["use"] for table in publish.translate])
    assert capsys.readouterr().out == output


@pytest.mark.parametrize("rule", RULES)
def test_page_has_every_option(rule: str) -> None:
    """With a meaning."""
    title = "select, drop" if rule in ("select", "drop") else rule
    rows = re.findall(r"^\| (`[^|]+) \|[^|]*\| (.+) \|$", section(title), re.MULTILINE)
    reported = {name for names, _ in rows for name in re.findall(r"`(\w+)`", names)}
    options = set(options_of(find("translators", rule, "page")).__struct_fields__)
    assert options == reported - ({"numeric"} if rule == "drop" else set())


def test_page_lists_every_rule() -> None:
    """At its beginning."""
    table, _, _ = PAGE.partition("\n\nRecords keep")
    head, *rows = re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)
    assert (head, tuple(rows)) == ("use", RULES)


def test_units_of_page_are_known() -> None:
    """In the page's spelling."""
    (listed,) = re.findall(r"a\s+base\s+unit\s+\((.*?) …\)", section("convert"), re.DOTALL)
    words = re.findall(r"`([^`]+)`", listed)
    assert len(words) > 15
    for word in words:
        assert parse_unit(word)
