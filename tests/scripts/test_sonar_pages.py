"""The pages in ``docs/`` agree with the types and tables."""

import json
import re

import jsonschema
import msgspec
import pytest
from hypothesis import given

from ccpipe.formats import sonar
from ccpipe.formats.sonar import (
    Envelope,
    ExtendedUint,
    SampleDisk,
    SampleEnvelope,
    SampleGpu,
    SampleProcess,
    SampleProcessGpu,
    encode,
)
from ccpipe.formats.sonar.envelopes import Envelopes
from ccpipe.translate.sonar.sonar_to_cc import SonarToCc
from scripts import sonar_pages
from tests.formats.sonar import examples
from tests.formats.sonar.examples import changed
from tests.formats.sonar.strategies import envelopes
from tests.formats.sonar.test_rules import RULES
from tests.paths import ROOT
from tests.translate.sonar.sonar_samples import at, job, sample

VALIDATOR = jsonschema.Draft202012Validator(sonar_pages.schema())


def test_every_metric_has_one_row() -> None:
    """No name occurs twice in the table of metrics."""
    names = [row.name for _, _, rows, _ in sonar_pages.SECTIONS for row in rows]
    assert len(names) == len(set(names))


def test_schema_is_valid() -> None:
    """JSON Schema's own schema accepts it."""
    jsonschema.Draft202012Validator.check_schema(sonar_pages.schema())


@given(envelopes)
def test_schema_accepts_any_valid_envelope(envelope: Envelope) -> None:
    """Any envelope that the encoder writes."""
    VALIDATOR.validate(json.loads(encode(envelope)))


NEUTRAL = ("data.attributes.system.boot", "")
"""Sonar writes +00:00 there, which the schema refuses."""

SAYABLE = {"NonemptyString", "NonzeroUint", "Timestamp", "OptionalTimestamp"}
"""Rules that JSON Schema can express; for a host name only with format validation."""


@pytest.mark.parametrize(
    ("text", "path", "value"), [rule[:3] for rule in RULES if rule[3] in SAYABLE]
)
def test_schema_rejects_data_that_strict_decoder_rejects(
    text: str, path: str, value: object
) -> None:
    """As far as JSON Schema can express it."""
    if text is examples.SAMPLE:
        text = changed(text, *NEUTRAL)
    assert VALIDATOR.is_valid(json.loads(text))
    assert not VALIDATOR.is_valid(json.loads(changed(text, path, value)))


def test_every_type_has_table() -> None:
    """With a row for each of its fields."""
    page = sonar_pages.types_page()
    for module in sonar_pages.MODULES:
        for cls in sonar_pages._records(module):
            section = page.partition(f"## {cls.__name__}\n")[2].partition("\n## ")[0]
            assert section
            for name in sonar_pages.texts(cls):
                assert f"\n| `{name}` | " in section


def test_page_has_every_metric_sent() -> None:
    """A full sample sends all of these and no others."""
    gpu = SampleGpu(
        uuid="GPU-1", performance_state=ExtendedUint(1), fan=1, temperature=1, power=1,
        power_limit=1, ce_clock=1, memory_clock=1,
    )  # fmt: skip
    process = SampleProcess(
        pid=1, data_read=1, gpus=(SampleProcessGpu(uuid="GPU-1", gpu_memory=1),)
    )

    def full(second: int) -> SampleEnvelope:
        disk = SampleDisk("sda", 8, 0, (second,) * 17)
        return sample(
            second, cpus=(second,), gpus=(gpu,), disks=(disk,), boot=at(-9), jobs=(job(process),),
            used_memory=1, runnable_entities=1, existing_entities=1,
        )  # fmt: skip

    lines = SonarToCc(envelopes=False).feed(Envelopes([full(0), full(60)]))
    assert {m.name for m in lines} == {
        row.name for _, _, rows, _ in sonar_pages.SECTIONS for row in rows
    }
    kinds = {row.name: row.kind for _, _, rows, _ in sonar_pages.SECTIONS for row in rows}
    assert {m.name for m in lines if type(m.value) is not kinds[m.name]} == set()


NODE_PAGE = (ROOT / "docs/sonar/node.md").read_text()
TABLES = dict(re.findall(r"^\| (S\w+) \|.*\n\|[-|]+\n((?:\|.*\n)+)", NODE_PAGE, re.MULTILINE))


def test_types_sent_by_node_have_table() -> None:
    """Those below the two envelopes."""
    assert set(TABLES) == {
        "SampleAttributes", "SampleSystem", "SampleDisk", "SampleJob", "SampleProcess",
        "SampleGpu", "SampleProcessGpu", "SysinfoAttributes", "SysinfoGpuCard",
    }  # fmt: skip


@pytest.mark.parametrize("name", TABLES)
def test_table_has_every_field_once_and_no_other(name: str) -> None:
    """The first column names them."""
    firsts = [row.split("|")[1] for row in TABLES[name].splitlines()]
    reported = re.findall(r"`(\w+)`", " ".join(firsts))
    assert sorted(reported) == sorted(f.name for f in msgspec.structs.fields(getattr(sonar, name)))
