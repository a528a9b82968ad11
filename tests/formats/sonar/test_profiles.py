"""Profiles: encodings of numbers, and their mark in the version."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.formats.sonar import INFINITE, UNSET, ExtendedUint, MetadataObject
from ccpipe.formats.sonar.profiles import mark, numbers_of, unmark
from tests.formats.sonar import examples
from tests.formats.sonar.examples import changed, one


def test_profile_sonar_reads_numbers_of_sonar() -> None:
    """``time_limit`` in seconds, ``performance_state`` v+1, so that 1 is P0."""
    jobs = one(examples.JOBS, profile="sonar").data.attributes.slurm_jobs
    assert jobs[0].time_limit == ExtendedUint(20160)
    assert jobs[1].time_limit == INFINITE
    for written, state in [(0, UNSET), (1, ExtendedUint(0)), (9, ExtendedUint(8))]:
        text = changed(examples.SAMPLE, "data.attributes.system.gpus.0.performance_state", written)
        gpu = one(text, profile="sonar").data.attributes.system.gpus[0]
        assert gpu.performance_state == state


@pytest.mark.parametrize(
    ("producer", "version", "minutes"),
    [
        ("sonar", "0.13.200", 20160),
        ("sonar", "0.19.0-devel", 20160),
        ("slurm-monitor", "0.3.0", 1209600),
        ("ccpipe", "0.1.0", 1209600),
        ("ccpipe", "0.1.0+sonar", 20160),
        ("ccpipe", "0.7.0+0-1-0-sonar", 20160),
        ("sonar", "0.19.0+spec", 1209600),
    ],
)
def test_auto_reads_numbers_by_producer_and_version(
    producer: str, version: str, minutes: int
) -> None:
    """Every Sonar writes seconds; a suffix to the version overrides that, and is removed."""
    text = changed(changed(examples.JOBS, "meta.producer", producer), "meta.version", version)
    for given_text in (text, changed(text, "zzz", 1)):
        envelope = one(given_text)
        assert envelope.data.attributes.slurm_jobs[0].time_limit == ExtendedUint(minutes)
        assert "sonar" not in envelope.meta.version
        assert "spec" not in envelope.meta.version


@given(st.integers(2**64 - 3, 2**64 - 1))
def test_profiles_accept_or_reject_largest_numbers(number: int) -> None:
    """Without other exceptions."""
    text = changed(examples.SAMPLE, "data.attributes.system.gpus.0.performance_state", number)
    assert one(text, profile="sonar").data.attributes.system.gpus[0].performance_state.value > 2**63


@given(
    st.sampled_from(["sonar", "ccpipe"]),
    st.text("+-spec1.0", max_size=12) | st.sampled_from(["1.0+spec", "1.0+a-sonar", "+sonar"]),
    st.sampled_from(["spec", "sonar"]),
    st.booleans(),
)
def test_mark_is_obeyed_and_removed(
    producer: str, version: str, numbers: Any, needed: bool
) -> None:
    """For any version."""
    meta = MetadataObject(producer, version)
    marked = mark(meta, numbers, needed=needed)
    assert unmark(marked) == meta
    if needed:
        assert numbers_of(producer, marked.version) == numbers
