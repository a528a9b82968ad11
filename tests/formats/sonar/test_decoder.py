"""Decoder of one value: types, checks, tolerance for real programs."""

import json
from typing import Any

import pytest

from ccpipe.formats import sonar
from ccpipe.formats.sonar import UNSET
from tests.formats.sonar import examples
from tests.formats.sonar.examples import bad, changed, one

TYPES = [
    (examples.SAMPLE, "data.attributes.jobs.1.user", 7, "expected `str`, got `int`"),
    (examples.SAMPLE, "data.attributes.jobs.1.job", "7", "expected `int`, got `str`"),
    (examples.SAMPLE, "data.attributes.jobs.1.job", 7.0, "expected `int`, got `float`"),
    (examples.SAMPLE, "data.attributes.jobs.1.job", -1, "expected `int` >= 0"),
    (examples.SAMPLE, "data.attributes.jobs.1.job", 2**64, "64 bits"),
    (examples.SAMPLE, "data.attributes.jobs.1.job", True, "expected `int`, got `bool`"),
    (examples.SAMPLE, "data.attributes.jobs", {}, "expected `array`, got `object`"),
    (examples.SAMPLE, "data.attributes.system.cpus.2", 2**70, "64 bits"),
    (examples.SAMPLE, "data.attributes.system.gpus.0.temperature", 2**63, "expected `int` <="),
    (examples.SYSINFO, "data.attributes.distances.1.0", 2**64, "64 bits"),
    (examples.SYSINFO, "data.attributes.cards.0", [], "expected `object`, got `array`"),
    (examples.SYSINFO, "data.type", "sys", "invalid value 'sys'"),
    (examples.SAMPLE, "data.attributes.time", "2025-02-30T00:00:00Z", "Timestamp"),
]


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize(("text", "path", "value", "rule"), TYPES)
def test_decoder_rejects_values_outside_types(
    text: str, path: str, value: Any, rule: str, strict: bool
) -> None:
    """With path and value, tolerant or not."""
    rejected = bad(changed(text, path, value), strict=strict)
    where = "$" + "".join(f"[{key}]" if key.isdigit() else f".{key}" for key in path.split("."))
    assert rejected.path == where
    assert rule in rejected.rule
    assert rejected.value == (None if isinstance(value, dict | list) else value)


def test_decoder_rejects_number_beyond_double() -> None:
    text = examples.SAMPLE.replace('"load1":1.5', '"load1":1e400')
    assert bad(text).path == "$.data.attributes.system.load1"


def test_decoder_keeps_data_with_empty_array_of_errors() -> None:
    """Other readers drop the data; a strict decoder reports the error."""
    text = examples.CLUSTER[:-1] + ',"errors":[]}'
    assert one(text) == one(examples.CLUSTER)
    assert bad(text, strict=True).path == "$.errors"


@pytest.mark.parametrize("tag", ["job", "jobs", "slurm_jobs"])
def test_decoder_reads_all_tags_of_jobs(tag: str) -> None:
    """Of real programs, of the specification, and of 0.13-devel."""
    assert one(changed(examples.JOBS, "data.type", tag)) == one(examples.JOBS)


def test_strict_decoder_rejects_tags_of_old_programs() -> None:
    """It accepts those of the specification and of current programs."""
    assert one(changed(examples.JOBS, "data.type", "jobs"), strict=True)
    assert bad(changed(examples.JOBS, "data.type", "slurm_jobs"), strict=True).path == "$.data.type"


@pytest.mark.parametrize("value", [..., "", None])
def test_tolerant_decoder_accepts_missing_times(value: Any) -> None:
    """And any other missing value."""
    text = changed(examples.JOBS, "data.attributes.time", value)
    assert one(text).data.attributes.time == ""
    text = changed(examples.JOBS, "data.attributes.slurm_jobs.0.time_limit", value or None)
    if value is None:
        assert one(text).data.attributes.slurm_jobs[0].time_limit == UNSET


def test_unknown_fields_are_kept_and_written_back() -> None:
    """At any path, with any value."""
    text = changed(examples.SYSINFO, "data.attributes.software", [{"key": "k", "name": "n"}])
    text = changed(text, "data.attributes.cards.0.colour", {"name": "blue"})
    text = changed(text, "extra", 1)
    envelope = one(text)
    assert envelope.unknown == {
        ("extra",): 1,
        ("data", "attributes", "software"): [{"key": "k", "name": "n"}],
        ("data", "attributes", "cards", 0, "colour"): {"name": "blue"},
    }
    written = sonar.encode(envelope, profile="sonar").decode()
    assert json.loads(written) == json.loads(text)
    assert one(written) == envelope


def test_unknown_field_does_not_change_other_fields() -> None:
    """Decoding with and without types gives the same result."""
    for text in examples.ALL:
        envelope = one(changed(text, "zzz", 1))
        assert envelope.unknown == {("zzz",): 1}
        assert sonar.encode(envelope).decode().replace(',"zzz":1', "") == (
            sonar.encode(one(text)).decode()
        )


@pytest.mark.parametrize("depth", [60, 100, 5000])
def test_decoder_keeps_or_rejects_deep_nesting(depth: int) -> None:
    """Without RecursionError."""
    text = examples.CLUSTER[:-1] + ',"deep":' + "[" * depth + "null" + "]" * depth + "}"
    if depth == 60:
        assert ("deep",) in one(text).unknown
    else:
        assert bad(text).rule == "JSON is nested too deeply"
