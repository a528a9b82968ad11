"""The types have the specification's fields, each with its type."""

import pytest

from ccpipe.formats import sonar
from ccpipe.formats.sonar import UNSET, ExtendedUint, SampleAttributes, SampleProcess
from ccpipe.formats.sonar.types.envelope import ENVELOPES
from ccpipe.formats.sonar.types.primitives import FieldLayout, Record, fields
from ccpipe.formats.sonar.types.sample import SampleGpu, SampleJob, SampleSystem
from ccpipe.formats.sonar.types.sysinfo import SysinfoAttributes
from scripts import sonar_pages
from tests.formats.sonar import examples
from tests.formats.sonar.examples import changed, one
from tests.paths import TEST_DATA

LISTED = TEST_DATA / "sonar" / "fields.txt"

NEWER = {
    "SysinfoAttributes.numa_nodes",
    "SampleSystem.boot",
    "SampleSystem.disks",
    "SampleProcess.in_container",
    "SlurmJob.requested_resources",
    "SlurmJob.allocated_resources",
}
"""Fields that Sonar 0.16.1 to 0.19 added to the specification."""

OPTIONAL = {"SlurmJob.submit_time", "SlurmJob.start_time", "SlurmJob.end_time"}
"""Timestamps that a job may not have yet."""


def listed() -> dict[str, str]:
    pairs = (line.split() for line in LISTED.read_text().splitlines() if line[0] != "#")
    outer = {cls.__name__ for pair in ENVELOPES.items() for cls in pair}
    return {name: kind for name, kind in pairs if name.partition(".")[0] not in outer}


def ours() -> dict[str, FieldLayout]:
    types = [cls for module in sonar_pages.MODULES for cls in sonar_pages._records(module)]
    return {f"{c.__name__}.{n}": field for c in types for n, field in fields(c).items()}


def test_every_field_of_specification_has_its_type() -> None:
    kinds = {name: kind_of(field) for name, field in ours().items()}
    for name, kind in listed().items():
        expected = kind.replace("SampleCpu", "uint64").lstrip("*")
        if name in OPTIONAL:
            assert expected == "Timestamp"
            expected = "OptionalTimestamp"
        assert kinds[name] == expected, name


def test_additional_fields_are_those_of_newer_sonar() -> None:
    beyond = {
        name for name in ours().keys() - listed().keys() if not name.startswith("SampleDisk.")
    }
    assert beyond == NEWER


def kind_of(field: FieldLayout) -> str:
    if field.record is not None:
        name = field.record.__name__
    elif field.primitive is not None:
        name = field.primitive.name
    elif field.span is not None:
        name = {"rolledup": "int"}.get(field.name, "int64" if field.span[0] else "uint64")
    else:
        known = {str: "string", float: "float64", bool: "bool"}
        name = known.get(field.value) or field.value.__name__
    return "[]" * field.depth + name


def test_every_field_has_description() -> None:
    """Each field has the specification's text as its docstring."""
    for module in sonar_pages.MODULES:
        for cls in sonar_pages._records(module):
            assert sonar_pages.texts(cls).keys() == fields(cls).keys()


def test_fields_are_in_order_of_specification() -> None:
    """Newer fields may be in between."""
    for data in ENVELOPES:
        attributes = fields(data)["attributes"].record
        assert attributes is not None
        prefix = f"{attributes.__name__}."
        expected = [name.removeprefix(prefix) for name in listed() if name.startswith(prefix)]
        assert [name for name in fields(attributes) if name in expected] == expected


def test_layout_has_depth_record_and_range() -> None:
    """An array has a depth, an object a type, an integer a range."""
    assert fields(SysinfoAttributes)["distances"].depth == 2
    assert fields(SysinfoAttributes)["distances"].span == (0, 2**64 - 1)
    assert fields(SampleProcess)["rolledup"].span == (-(2**63), 2**63 - 1)
    jobs, system = fields(SampleAttributes)["jobs"], fields(SampleAttributes)["system"]
    assert (jobs.record, jobs.depth, jobs.default) == (SampleJob, 1, ())
    assert (system.record, system.depth, system.default) == (SampleSystem, 0, None)
    state = fields(SampleGpu)["performance_state"]
    assert (state.value, state.span, state.default) == (ExtendedUint, None, UNSET)


def test_envelopes_have_data_of_specification() -> None:
    """Four kinds of data, each with its envelope and attributes."""
    pairs = dict(line.split() for line in LISTED.read_text().splitlines() if line[0] != "#")
    for data, cls in ENVELOPES.items():
        assert pairs[f"{cls.__name__}.data"] == f"*{data.__name__}"
        attributes = fields(data)["attributes"].record
        assert attributes is not None
        assert pairs[f"{data.__name__}.attributes"] == attributes.__name__


@pytest.mark.parametrize("data", list(ENVELOPES))
def test_all_defaults_are_empty(data: type[Record]) -> None:
    """An omitted field is zero, empty, false or missing."""
    attributes = fields(data)["attributes"].record
    assert attributes is not None
    assert not any(getattr(attributes(), name) for name in fields(attributes))


def test_attributes_of_producer_keep_their_order() -> None:
    """An array of key-value pairs, whose values may be empty."""
    attrs = [{"key": "python", "value": "3.11"}, {"key": "batchless"}]
    meta = one(changed(examples.SAMPLE, "meta.attrs", attrs), strict=False).meta
    assert meta.attrs == (sonar.KVPair("python", "3.11"), sonar.KVPair("batchless", ""))
