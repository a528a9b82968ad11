"""``docs/node/processing.md`` says what the rules do."""

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
RULES = ("select", "drop", "rename", "tag", "convert", "aggregate", "time_window")
TOPOLOGY = [{"hwthread": str(number), "socket": socket} for number, socket in enumerate("001")]
CONTEXT = {"units": {}, "topology": TOPOLOGY}


def section(title: str) -> str:
    found = re.search(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", PAGE, re.DOTALL | re.MULTILINE)
    assert found, title
    return found[1]


def test_the_example_does_what_the_page_says(capsys: pytest.CaptureFixture[str]) -> None:
    """Its configuration, applied to its sample, prints its output."""
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
def test_every_option_is_there(rule: str) -> None:
    """Whoever adds one says what it means."""
    title = "select, drop" if rule in ("select", "drop") else rule
    rows = re.findall(r"^\| (`[^|]+) \|[^|]*\| (.+) \|$", section(title), re.MULTILINE)
    reported = {name for names, _ in rows for name in re.findall(r"`(\w+)`", names)}
    options = set(options_of(find("translators", rule, "page")).__struct_fields__)
    assert options == reported - ({"numeric"} if rule == "drop" else set())


def test_every_rule_is_in_the_list() -> None:
    """The page begins with all of them."""
    table, _, _ = PAGE.partition("\n\nRecords keep")
    head, *rows = re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)
    assert (head, tuple(rows)) == ("use", RULES)


def test_the_units_that_are_named_are_known() -> None:
    """In the page's own spelling."""
    (listed,) = re.findall(r"a\s+base\s+unit\s+\((.*?) …\)", section("convert"), re.DOTALL)
    words = re.findall(r"`([^`]+)`", listed)
    assert len(words) > 15
    for word in words:
        assert parse_unit(word)
