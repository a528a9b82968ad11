"""``docs/sonar/node.md`` tells of every field that a node fills in."""

import re

import msgspec
import pytest

from ccpipe.formats import sonar
from tests.paths import ROOT

PAGE = (ROOT / "docs/sonar/node.md").read_text()
TABLES = dict(re.findall(r"^\| (S\w+) \|.*\n\|[-|]+\n((?:\|.*\n)+)", PAGE, re.MULTILINE))


def test_all_types_that_a_node_sends_have_a_table() -> None:
    """Those below the two envelopes."""
    assert set(TABLES) == {
        "SampleAttributes", "SampleSystem", "SampleDisk", "SampleJob", "SampleProcess",
        "SampleGpu", "SampleProcessGpu", "SysinfoAttributes", "SysinfoGpuCard",
    }  # fmt: skip


@pytest.mark.parametrize("name", TABLES)
def test_a_table_has_every_field_once_and_no_other(name: str) -> None:
    """The first column names them."""
    firsts = [row.split("|")[1] for row in TABLES[name].splitlines()]
    reported = re.findall(r"`(\w+)`", " ".join(firsts))
    assert sorted(reported) == sorted(f.name for f in msgspec.structs.fields(getattr(sonar, name)))
