"""The pages in ``docs/`` are what the types say."""

import json

import jsonschema
import pytest
from hypothesis import given, settings

from ccpipe.formats.sonar import Envelope, document, encode
from tests.formats.sonar import examples
from tests.formats.sonar.strategies import envelopes
from tests.formats.sonar.test_decoder import NEUTRAL, RULES, changed
from tests.paths import ROOT

DOCS = ROOT / "docs"
VALIDATOR = jsonschema.Draft202012Validator(document.schema())


def test_the_page_is_up_to_date() -> None:
    """`python -m ccpipe.formats.sonar.document > docs/sonar.md` has been run."""
    assert (DOCS / "sonar.md").read_text() == document.page()


def test_the_schema_is_up_to_date() -> None:
    """`python -m ccpipe.formats.sonar.document schema > docs/sonar.schema.json` has been run."""
    assert json.loads((DOCS / "sonar.schema.json").read_text()) == document.schema()


def test_the_schema_is_one() -> None:
    """JSON Schema's own schema accepts it."""
    jsonschema.Draft202012Validator.check_schema(document.schema())


@settings(max_examples=40)
@given(envelopes)
def test_the_schema_accepts_any_valid_envelope(envelope: Envelope) -> None:
    """What the encoder writes is what the schema describes."""
    VALIDATOR.validate(json.loads(encode(envelope)))


SAYABLE = {"NonemptyString", "NonzeroUint", "Timestamp", "OptionalTimestamp"}
"""Rules that JSON Schema can say; a host name is one only to validators that check formats."""


@pytest.mark.parametrize(
    ("text", "path", "value"), [rule[:3] for rule in RULES if rule[3] in SAYABLE]
)
def test_the_schema_refuses_what_a_strict_decoder_refuses(
    text: str, path: str, value: object
) -> None:
    """As far as JSON Schema can say it."""
    if text is examples.SAMPLE:
        text = changed(text, *NEUTRAL)
    assert VALIDATOR.is_valid(json.loads(text))
    assert not VALIDATOR.is_valid(json.loads(changed(text, path, value)))


def test_every_type_has_its_table() -> None:
    """And each of its fields a row."""
    page = document.page()
    for module in document.MODULES:
        for cls in document._records(module):
            section = page.partition(f"## {cls.__name__}\n")[2].partition("\n## ")[0]
            assert section
            for name in document.texts(cls):
                assert f"\n| `{name}` | " in section
