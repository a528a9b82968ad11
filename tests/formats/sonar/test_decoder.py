"""One value to an envelope: typed, checked, tolerant of what real programs write."""

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
def test_no_decoder_takes_what_the_types_cannot_hold(
    text: str, path: str, value: Any, rule: str, strict: bool
) -> None:
    """The path of the offence and its value are told, tolerant or not."""
    rejected = bad(changed(text, path, value), strict=strict)
    where = "$" + "".join(f"[{key}]" if key.isdigit() else f".{key}" for key in path.split("."))
    assert rejected.path == where
    assert rule in rejected.rule
    assert rejected.value == (None if isinstance(value, dict | list) else value)


def test_a_number_beyond_all_floats_is_named() -> None:
    """JSON can write it, no double can hold it."""
    text = examples.SAMPLE.replace('"load1":1.5', '"load1":1e400')
    assert bad(text).path == "$.data.attributes.system.load1"


def test_an_empty_array_of_errors_beside_data_loses_nothing() -> None:
    """Other readers drop the data; a strict one names the offence."""
    text = examples.CLUSTER[:-1] + ',"errors":[]}'
    assert one(text) == one(examples.CLUSTER)
    assert bad(text, strict=True).path == "$.errors"


@pytest.mark.parametrize("tag", ["job", "jobs", "slurm_jobs"])
def test_all_tags_of_jobs_are_read(tag: str) -> None:
    """What programs write, what the specification says, what 0.13-devel wrote."""
    assert one(changed(examples.JOBS, "data.type", tag)) == one(examples.JOBS)


def test_a_strict_decoder_knows_no_tag_of_old_programs() -> None:
    """It takes what the specification says and what its own programs write."""
    assert one(changed(examples.JOBS, "data.type", "jobs"), strict=True)
    assert bad(changed(examples.JOBS, "data.type", "slurm_jobs"), strict=True).path == "$.data.type"


@pytest.mark.parametrize("value", [..., "", None])
def test_times_that_are_missing_are_no_offence_in_archives(value: Any) -> None:
    """Neither is any other value that is not there."""
    text = changed(examples.JOBS, "data.attributes.time", value)
    assert one(text).data.attributes.time == ""
    text = changed(examples.JOBS, "data.attributes.slurm_jobs.0.time_limit", value or None)
    if value is None:
        assert one(text).data.attributes.slurm_jobs[0].time_limit == UNSET


def test_unknown_fields_are_kept_and_written_back() -> None:
    """Wherever they are, whatever they hold."""
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


def test_an_unknown_field_does_not_change_the_rest() -> None:
    """The way without types reads what the way with types reads."""
    for text in examples.ALL:
        envelope = one(changed(text, "zzz", 1))
        assert envelope.unknown == {("zzz",): 1}
        assert sonar.encode(envelope).decode().replace(',"zzz":1', "") == (
            sonar.encode(one(text)).decode()
        )


@pytest.mark.parametrize("depth", [60, 100, 5000])
def test_what_nests_deeply_is_kept_or_named(depth: int) -> None:
    """No recursion ends the program."""
    text = examples.CLUSTER[:-1] + ',"deep":' + "[" * depth + "null" + "]" * depth + "}"
    if depth == 60:
        assert ("deep",) in one(text).unknown
    else:
        assert bad(text).rule == "JSON is nested too deeply"
