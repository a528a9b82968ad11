"""Profiles: variants of the JSON, as specified or as one program writes or reads it.

For writing:

`spec` follows the specification: jobs have the tag "jobs", ``time_limit`` is in minutes.

`sonar` is the output of Sonar 0.19, which differs from the specification: ``time_limit`` is in
seconds, ``performance_state`` is v+1 so that 1 means P0, ``+00:00`` is written for ``Z``, and the
tag of jobs is "job". ``format``, ``attrs`` and ``token`` in ``meta`` are never written. The
profiles below extend this one for their readers: both read ``time_limit`` as Sonar writes it.

`jobanalyzer` is for Jobanalyzer. It recomputes ``cpu_util`` only for a ``meta.version`` of three
parts, at least 0.7.0: any other version is appended to one, as ``0.7.0+0-1-0`` for 0.1.0. Its HTTP
interface rejects records without the fields that Sonar omits if they are zero, samples without
``system`` and ``boot``, and fields that Sonar removed: ``gres_detail`` and
``minimum_cpus_per_node`` of a job. It drops envelopes of errors.

`slurm-monitor` is for slurm-monitor. It rejects messages with other fields than ``producer`` and
``version`` in ``meta``, and fails on an envelope of errors, for which encoding raises an error. It
only keeps the last range of a partition, so all are written as one.

For reading, `sonar` and `spec` select the encoding of ``time_limit`` and ``performance_state``.
`auto`, the default, decides by envelope: `sonar` if ``meta.producer`` is "sonar", as in all
versions of Sonar, else `spec`. An envelope encoded differently has a suffix to its version,
``0.19.0+spec`` or ``1.0.0+sonar``, which decoders obey and remove. When reading `sonar`, a strict
decoder allows Sonar's deviations, ``+00:00`` for ``Z`` and "CANCELLED by 1000"; so it accepts the
output of every profile.

Source: Sonar's ``src/output.rs``, ``src/ps_newfmt.rs``, ``src/slurmjobs.rs``; Jobanalyzer's
``code/sonalyze``; slurm-monitor's ``db/v2/importer.py``.
"""

import re
from collections.abc import Callable
from typing import Literal, NamedTuple

from msgspec.structs import replace

from ccpipe.errors import EncodeError
from ccpipe.formats.sonar.types.cluster import ClusterAttributes, ClusterNodes, ClusterPartition
from ccpipe.formats.sonar.types.envelope import ClusterData, Envelope, JobsData, SampleData
from ccpipe.formats.sonar.types.job import JobsAttributes, SlurmJob
from ccpipe.formats.sonar.types.meta import ErrorObject, MetadataObject
from ccpipe.formats.sonar.types.primitives import UINT64_MAX, UNSET, ExtendedUint, Record
from ccpipe.formats.sonar.types.sample import (
    SampleAttributes,
    SampleDisk,
    SampleGpu,
    SampleJob,
    SampleProcess,
    SampleProcessGpu,
    SampleSystem,
)
from ccpipe.formats.sonar.types.sysinfo import SysinfoAttributes, SysinfoGpuCard

WriteProfile = Literal["spec", "sonar", "jobanalyzer", "slurm-monitor"]
"""Profile of an envelope to write."""

ReadProfile = Literal["auto", "spec", "sonar"]
"""Profile of envelopes to read; ``auto`` decides by envelope, see ``numbers_of``."""

Numbers = Literal["spec", "sonar"]
"""Encoding of ``time_limit`` and ``performance_state``: see the module's docstring."""


Always = dict[type[Record], frozenset[str]]
"""Fields of each type that are written even with their default value."""


def _fields(text: str) -> frozenset[str]:
    return frozenset(text.split())


_SPEC: Always = {
    SampleAttributes: _fields("jobs"),
    JobsAttributes: _fields("slurm_jobs"),
    SlurmJob: _fields("job_id job_step job_name job_state"),
}
"""An empty array of jobs is a heartbeat; of a job "the first four fields […] must be transmitted
in every record"."""

_SONAR: Always = {
    SysinfoAttributes: _fields("numa_nodes cpu_model architecture distances"),
    SysinfoGpuCard: _fields("index uuid"),
    SampleAttributes: _fields("jobs"),
    SampleSystem: _fields(
        "cpus disks used_memory load1 load5 load15 runnable_entities existing_entities"
    ),
    SampleDisk: _fields("name major minor stats"),
    SampleJob: _fields("job user processes"),
    SampleProcess: _fields("cmd"),
    SampleProcessGpu: _fields("index uuid"),
    JobsAttributes: _fields("slurm_jobs"),
    ClusterAttributes: _fields("slurm partitions nodes"),
    ClusterPartition: _fields("name nodes"),
    ClusterNodes: _fields("names states"),
}

_JOBANALYZER: Always = _SONAR | {
    MetadataObject: _fields("producer version"),
    ErrorObject: _fields("time detail cluster node"),
    SysinfoAttributes: _SONAR[SysinfoAttributes]
    | _fields(
        "time cluster node os_name os_release sockets cores_per_socket threads_per_core memory"
    ),
    SampleAttributes: _fields("time cluster node jobs"),
    SampleSystem: _SONAR[SampleSystem] | {"boot"},
    SampleGpu: _fields("index uuid"),
    SampleJob: _fields("job user epoch processes"),
    JobsAttributes: _fields("time cluster slurm_jobs"),
    SlurmJob: _fields("job_id job_step job_name job_state submit_time start_time end_time"),
    ClusterAttributes: _SONAR[ClusterAttributes] | _fields("time cluster"),
}
"""Required by its HTTP interface; see `_for_jobanalyzer` for what it rejects."""

_SLURM_MONITOR: Always = _SONAR | {
    SampleGpu: _fields("index uuid"),
    SampleJob: _fields("job user epoch processes"),
    SlurmJob: _fields("job_id job_step job_name job_state"),
}


class Style(NamedTuple):
    """How a profile is written."""

    always: Always
    jobs_tag: str = "job"
    numbers: Numbers = "sonar"
    prepare: Callable[[Envelope], Envelope] = lambda envelope: envelope
    """Other changes; raises EncodeError for data that the reader cannot process."""


def _bare(envelope: Envelope) -> Envelope:
    """Remove all fields of ``meta`` but ``producer`` and ``version``."""
    meta = MetadataObject(producer=envelope.meta.producer, version=envelope.meta.version)
    return replace(envelope, meta=meta)


_OF_THREE_PARTS = re.compile(r"(\d+)\.(\d+)\.\d[^.]*\Z", re.ASCII)
_NEW_ENOUGH = (0, 7)


def _for_jobanalyzer(envelope: Envelope) -> Envelope:
    bare = replace(_bare(envelope), unknown={})
    data = bare.data
    if isinstance(data, SampleData) and data.attributes.system is None:
        attributes = replace(data.attributes, system=SampleSystem())
        bare = replace(bare, data=replace(data, attributes=attributes))
    if isinstance(data, JobsData):
        jobs = tuple(map(_without_removed_fields, data.attributes.slurm_jobs))
        bare = replace(bare, data=JobsData(replace(data.attributes, slurm_jobs=jobs)))
    version = bare.meta.version
    found = _OF_THREE_PARTS.match(version)
    if found and (int(found[1]), int(found[2])) >= _NEW_ENOUGH:
        return bare
    kept = re.sub(r"[^0-9A-Za-z-]", "-", version)
    return replace(bare, meta=replace(bare.meta, version=f"0.7.0+{kept}"))


def _without_removed_fields(job: SlurmJob) -> SlurmJob:
    if not job.gres_detail and not job.minimum_cpus_per_node:
        return job
    return replace(job, gres_detail=(), minimum_cpus_per_node=0)


def _for_slurm_monitor(envelope: Envelope) -> Envelope:
    if envelope.data is None:
        raise EncodeError("slurm-monitor cannot read an envelope of errors")
    bare = replace(_bare(envelope), unknown={})
    if not isinstance(bare.data, ClusterData):
        return bare
    partitions = tuple(
        replace(partition, nodes=(",".join(partition.nodes),) if partition.nodes else ())
        for partition in bare.data.attributes.partitions
    )
    attributes = replace(bare.data.attributes, partitions=partitions)
    return replace(bare, data=replace(bare.data, attributes=attributes))


STYLES: dict[str, Style] = {
    "spec": Style(_SPEC, jobs_tag="jobs", numbers="spec"),
    "sonar": Style(_SONAR, prepare=_bare),
    "jobanalyzer": Style(_JOBANALYZER, prepare=_for_jobanalyzer),
    "slurm-monitor": Style(_SLURM_MONITOR, prepare=_for_slurm_monitor),
}


def numbers_of(producer: str, version: str, profile: ReadProfile = "auto") -> Numbers:
    """Return the number encoding of an envelope, by its ``meta``.

    ``auto`` obeys the suffix of the version if there is one (``+spec``, ``+sonar``), else it
    decides by the producer: every version of Sonar writes seconds and v+1.
    """
    if profile != "auto":
        return profile
    for numbers in _MARKS:
        if _without_mark(version, numbers) != version:
            return numbers
    return _default_numbers(producer)


_MARKS: tuple[Numbers, ...] = ("spec", "sonar")


def _default_numbers(producer: str) -> Numbers:
    return "sonar" if producer == "sonar" else "spec"


def _without_mark(version: str, numbers: Numbers) -> str:
    head, _, build = version.partition("+")
    return head if build == numbers else version.removesuffix(f"-{numbers}") if build else version


def mark(meta: MetadataObject, numbers: Numbers, *, needed: bool) -> MetadataObject:
    """Append the number encoding to the version if the producer does not imply it.

    A version that already has such a suffix gets one even if not `needed`, so that ``unmark``
    restores it.
    """
    version = meta.version
    is_implied = _default_numbers(meta.producer) == numbers or not needed
    if is_implied and unmark(meta) is meta:
        return meta
    return replace(meta, version=f"{version}{'-' if '+' in version else '+'}{numbers}")


def unmark(meta: MetadataObject) -> MetadataObject:
    if "+" in meta.version:
        for numbers in _MARKS:
            if (version := _without_mark(meta.version, numbers)) != meta.version:
                return replace(meta, version=version)
    return meta


def depends_on_numbers(envelope: Envelope) -> bool:
    """Return whether an envelope has a number with two encodings."""
    data = envelope.data
    if isinstance(data, SampleData) and data.attributes.system is not None:
        return any(gpu.performance_state for gpu in data.attributes.system.gpus)
    if isinstance(data, JobsData):
        return any(job.time_limit.value is not None for job in data.attributes.slurm_jobs)
    return False


def from_sonar(envelope: Envelope) -> Envelope:
    """Convert numbers as Sonar 0.19 writes them to the specification's encoding.

    A ``time_limit`` is rounded up to whole minutes.
    """
    return _changed(envelope, state=_state_from_sonar, limit=_minutes)


def to_sonar(envelope: Envelope) -> Envelope:
    """Convert numbers to the encoding of Sonar 0.19; raises EncodeError."""
    return _changed(envelope, state=_state_to_sonar, limit=_seconds)


Change = Callable[[ExtendedUint], ExtendedUint]


def _changed(envelope: Envelope, *, state: Change, limit: Change) -> Envelope:
    data = envelope.data
    if not depends_on_numbers(envelope):
        return envelope
    if isinstance(data, SampleData) and data.attributes.system is not None:
        system = data.attributes.system
        gpus = tuple(
            replace(gpu, performance_state=state(gpu.performance_state)) for gpu in system.gpus
        )
        sample = replace(data.attributes, system=replace(system, gpus=gpus))
        return replace(envelope, data=replace(data, attributes=sample))
    assert isinstance(data, JobsData)
    jobs = tuple(
        replace(job, time_limit=limit(job.time_limit)) for job in data.attributes.slurm_jobs
    )
    attributes = replace(data.attributes, slurm_jobs=jobs)
    return replace(envelope, data=replace(data, attributes=attributes))


def _state_from_sonar(state: ExtendedUint) -> ExtendedUint:
    """Convert v+1 to v+2: the value 1, infinite in the specification, is state 0."""
    return ExtendedUint(min(state.wire, UINT64_MAX - 1) - 1) if state else UNSET


def _state_to_sonar(state: ExtendedUint) -> ExtendedUint:
    if state.is_infinite:
        raise EncodeError("an infinite performance_state has no encoding in Sonar")
    return ExtendedUint.from_wire(state.wire - 1) if state else UNSET


def _minutes(limit: ExtendedUint) -> ExtendedUint:
    return limit if limit.value is None else ExtendedUint(-(-limit.value // 60))


def _seconds(limit: ExtendedUint) -> ExtendedUint:
    if limit.value is None:
        return limit
    try:
        return ExtendedUint(60 * limit.value)
    except ValueError as error:
        raise EncodeError(f"time_limit in seconds: {error}") from None
