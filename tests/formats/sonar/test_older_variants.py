"""What old programs wrote is what new ones write."""

import json

import pytest

from ccpipe.formats.sonar import decode
from tests.formats.sonar import examples
from tests.formats.sonar.examples import changed, one


def test_columns_that_were_renamed() -> None:
    """Those of a node, of processes, and of the array of jobs."""
    tree = json.loads(examples.SYSINFO)
    attributes = tree["data"]["attributes"]
    attributes["os"] = attributes.pop("os_name")
    attributes["os-version"] = attributes.pop("os_release")
    assert one(json.dumps(tree)) == one(examples.SYSINFO)
    text = examples.SAMPLE.replace("resident_memory", "resident").replace("virtual_m", "m")
    text = text.replace('"memory":9201936', '"virtual":9201936')
    assert one(text) == one(examples.SAMPLE)
    assert one(examples.JOBS.replace("slurm_jobs", "slurm-jobs")) == one(examples.JOBS)


def test_null_means_missing() -> None:
    """Go's own encoder writes it for what is not there."""
    text = examples.SAMPLE.replace('"fan":37', '"fan":null').replace("}}}", '}},"errors":null}')
    without = examples.SAMPLE.replace('"fan":37,', "")
    assert one(text) == one(without)


@pytest.mark.parametrize("old", ['"jobs":3', '"jobs":[3,[]]', '"jobs":[{"processes":7}]'])
def test_no_shape_breaks_it(old: str) -> None:
    """What is no array of objects is told by the types."""
    payload = '{"meta":{},"data":{"type":"sample","attributes":{"os":1,' + old + "}}}"
    assert decode(payload.encode()).rejected[0].path.startswith("$.data.attributes.jobs")


WRAPPED = (
    '{"topic":"fox.educloud.no.sample",\n "key":"vm",\n "client":"fox.educloud.no/vm",\n'
    ' "value":%s\n}\n'
)


@pytest.mark.parametrize("strict", [False, True])
def test_sonars_standard_output_is_unwrapped(strict: bool) -> None:
    """Its daemon without a sink writes each envelope as the value of an object with its topic."""
    payload = "".join(WRAPPED % text for text in examples.ALL).encode()
    decoded = decode(payload, strict=strict)
    assert decoded.rejected == []
    assert decoded == [one(text) for text in examples.ALL]


def test_a_bad_envelope_in_its_wrapping_costs_no_other() -> None:
    """Also where the wrapping is cut off: reading goes on at the next one."""
    broken = WRAPPED % changed(examples.SYSINFO, "data.attributes.sockets", "two")
    payload = broken + (WRAPPED % examples.SAMPLE)[:300] + "\n" + WRAPPED % examples.ERROR
    decoded = decode(payload.encode())
    assert decoded == [one(examples.ERROR)]
    first, second, *_ = decoded.rejected
    assert (first.path, first.rule) == ("$.data.attributes.sockets", "expected `int`, got `str`")
    assert second.start == len(broken)
