"""Rules of the specification beyond its types, and checks of envelopes.

A strict check applies all rules; a tolerant one accepts real archives and only requires readable
times and integers of 64 bits.
"""

import binascii
import functools
import re
from collections.abc import Callable, Iterator
from itertools import chain
from operator import attrgetter
from typing import Any, Literal, NamedTuple

from ccpipe.formats.sonar.profiles import Numbers
from ccpipe.formats.sonar.types.cluster import ClusterNodes
from ccpipe.formats.sonar.types.envelope import Envelope, Path
from ccpipe.formats.sonar.types.job import SlurmJob
from ccpipe.formats.sonar.types.meta import MetadataObject
from ccpipe.formats.sonar.types.primitives import (
    UINT64_MAX,
    Primitive,
    Record,
    fields,
    is_node_range,
)
from ccpipe.formats.sonar.types.sample import SampleJob
from ccpipe.formats.sonar.types.sysinfo import SysinfoAttributes

JOB_STATES = (
    "PENDING",
    "RUNNING",
    "CANCELLED",
    "COMPLETED",
    "DEADLINE",
    "FAILED",
    "OUT_OF_MEMORY",
    "TIMEOUT",
)


class Problem(NamedTuple):
    """A rule that a value breaks."""

    path: str
    """Path of the value: ``$.data.attributes.jobs[3].user``; ``$`` is the whole envelope."""
    rule: str
    value: Any = None

    def __str__(self) -> str:
        reported = self.rule if self.path == "$" else f"{self.path}: {self.rule}"
        return reported if self.value is None else f"{reported}: {self.value!r:.80}"


def format_path(path: Path) -> str:
    return "$" + "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in path)


def problems(
    envelope: Envelope, *, strict: bool = False, writer: Numbers = "spec"
) -> list[Problem]:
    """Return the rules that an envelope breaks, in the order of its fields.

    A strict check of Sonar's own output (`writer`) allows its deviations from the specification:
    ``+00:00`` for ``Z``, and "CANCELLED by 1000" as a job's state.
    """
    level: Level = ("strict" if writer == "spec" else "sonar") if strict else "tolerant"
    found = list(_exclusive(envelope))
    if not _are_clean([envelope], level):
        found[:0] = [
            Problem(format_path(p), rule, value) for p, rule, value in _walk(envelope, level)
        ]
    return found


Level = Literal["tolerant", "strict", "sonar"]


def beyond_64_bits(value: Any, path: Path = ()) -> Iterator[Problem]:
    """Yield the integers in a record that exceed 64 bits."""
    if isinstance(value, Record):
        for name in fields(type(value)):
            yield from beyond_64_bits(getattr(value, name), (*path, name))
    elif isinstance(value, tuple):
        for index, item in enumerate(value):
            yield from beyond_64_bits(item, (*path, index))
    elif isinstance(value, int) and value > UINT64_MAX:
        yield Problem(format_path(path), "must be an integer of 64 bits", value)


def _exclusive(envelope: Envelope) -> Iterator[Problem]:
    if envelope.data is not None and envelope.errors:
        yield Problem("$", "must not have both data and errors", envelope.errors[0].detail)
    if envelope.data is None and not envelope.errors:
        yield Problem("$", "must have data or errors")


Broken = tuple[Path, str, Any]


def _are_clean(records: list[Any], level: Level) -> bool:
    """Return whether records of one type break no rule; a fast path over all of them at once."""
    cls: type[Record] = type(records[0])
    plan = _plan(cls, level)
    for name, test, _ in plan.values:
        if not all(map(test, map(attrgetter(name), records))):
            return False
    for name, test, _ in plan.arrays:
        if not all(map(test, chain.from_iterable(map(attrgetter(name), records)))):
            return False
    if plan.prose and any(True for record in records for _ in plan.prose(record)):
        return False
    for name in plan.records:
        held = [value for value in map(attrgetter(name), records) if value]
        below = list(chain.from_iterable(held)) if held and type(held[0]) is tuple else held
        if below and not _are_clean(below, level):
            return False
    return True


def _walk(record: Record, level: Level, path: Path = ()) -> Iterator[Broken]:
    plan = _plan(type(record), level)
    for name, test, rule in plan.values:
        value = getattr(record, name)
        if not test(value):
            yield (*path, name), rule, value
    for name, test, rule in plan.arrays:
        for index, value in enumerate(getattr(record, name)):
            if not test(value):
                yield (*path, name, index), rule, value
    if plan.prose:
        for place, rule, value in plan.prose(record):
            yield (*path, *place), rule, value
    yield from _walk_below(record, plan.records, level, path)


def _walk_below(record: Record, names: list[str], level: Level, path: Path) -> Iterator[Broken]:
    for name in names:
        value = getattr(record, name)
        if isinstance(value, tuple):
            for index, item in enumerate(value):
                yield from _walk(item, level, (*path, name, index))
        elif value is not None:
            yield from _walk(value, level, (*path, name))


Tests = list[tuple[str, Callable[[Any], bool], str]]


class _Plan(NamedTuple):
    """Checks of a type and of the types below."""

    values: Tests
    arrays: Tests
    records: list[str]
    prose: Callable[[Any], Iterator[Broken]] | None

    @property
    def is_empty(self) -> bool:
        return not (self.values or self.arrays or self.records or self.prose)


@functools.cache
def _plan(cls: type[Record], level: Level) -> _Plan:
    plan = _Plan([], [], [], _prose_rules(cls, level))
    for field in fields(cls).values():
        if field.primitive is not None:
            test = _test(field.primitive, level)
            if test is not None:
                tests = plan.arrays if field.depth else plan.values
                tests.append((field.name, test, f"{field.primitive.name} {field.primitive.rule}"))
        elif field.name == "data" or (
            field.record is not None and not _plan(field.record, level).is_empty
        ):
            plan.records.append(field.name)
    return plan


def _test(primitive: Primitive, level: Level) -> Callable[[Any], bool] | None:
    if level == "tolerant":
        return primitive.tolerant
    return (primitive.sonar if level == "sonar" else None) or primitive.strict


def _prose_rules(cls: type[Record], level: Level) -> Callable[[Any], Iterator[Broken]] | None:
    if level == "tolerant":
        return None
    return _slurm_job_of_sonar if level == "sonar" and cls is SlurmJob else _PROSE.get(cls)


_SEMVER = re.compile(
    r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)"
    r"(-(0|[1-9]\d*|\d*[A-Za-z-][\dA-Za-z-]*)(\.(0|[1-9]\d*|\d*[A-Za-z-][\dA-Za-z-]*))*)?"
    r"(\+[\dA-Za-z-]+(\.[\dA-Za-z-]+)*)?",
    re.ASCII,
)


def _meta(meta: MetadataObject) -> Iterator[Broken]:
    if meta.format:
        yield ("format",), "must be 0", meta.format
    if meta.version and not _SEMVER.fullmatch(meta.version):
        yield ("version",), "must be a semantic version, such as 0.19.0-devel", meta.version
    seen: set[str] = set()
    for index, pair in enumerate(meta.attrs):
        if pair.key in seen:
            yield ("attrs", index, "key"), "must be unique in the array", pair.key
        seen.add(pair.key)


def _sysinfo(node: SysinfoAttributes) -> Iterator[Broken]:
    if any(len(row) != len(node.distances) for row in node.distances):
        yield ("distances",), "must be a square matrix", node.distances
    for name in ("topo_svg", "topo_text"):
        try:
            binascii.a2b_base64(getattr(node, name), strict_mode=True)
        except ValueError:
            yield (name,), "must be base64", getattr(node, name)


def _sample_job(job: SampleJob) -> Iterator[Broken]:
    if not job.job and not job.epoch:
        yield ("job",), "must not be zero if epoch is zero", job.job


def _slurm_job(job: SlurmJob) -> Iterator[Broken]:
    if job.job_state and job.job_state not in JOB_STATES:
        yield ("job_state",), f"must be one of {', '.join(JOB_STATES)}", job.job_state
    yield from _slurm_job_numbers_and_nodes(job)


def _slurm_job_numbers_and_nodes(job: SlurmJob) -> Iterator[Broken]:
    for whole, part in (("array_job_id", "array_task_id"), ("het_job_id", "het_job_offset")):
        if getattr(job, part) and not getattr(job, whole):
            yield (part,), f"must be zero if {whole} is zero", getattr(job, part)
    for index, names in enumerate(job.nodes):
        if not is_node_range(names):
            yield ("nodes", index), "must be a list of nodes", names


def _slurm_job_of_sonar(job: SlurmJob) -> Iterator[Broken]:
    if job.job_state.startswith("CANCELLED by "):
        yield from _slurm_job_numbers_and_nodes(job)
    else:
        yield from _slurm_job(job)


def _cluster_nodes(nodes: ClusterNodes) -> Iterator[Broken]:
    if not nodes.names:
        yield ("names",), "must not be empty", []
    for index, state in enumerate(nodes.states):
        if state != state.upper():
            yield ("states", index), "must be in upper case", state


_PROSE: dict[type[Record], Callable[[Any], Iterator[Broken]]] = {
    MetadataObject: _meta,
    SysinfoAttributes: _sysinfo,
    SampleJob: _sample_job,
    SlurmJob: _slurm_job,
    ClusterNodes: _cluster_nodes,
}
"""Rules that the specification states in prose."""
