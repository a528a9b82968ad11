"""Any valid envelope, generated from the types, so that new fields are covered automatically."""

import base64
from datetime import timedelta, timezone
from typing import Any

from hypothesis import strategies as st

from ccpipe.formats import sonar
from ccpipe.formats.nodelist import compress
from ccpipe.formats.sonar.rules import JOB_STATES
from ccpipe.formats.sonar.types.envelope import ENVELOPES
from ccpipe.formats.sonar.types.primitives import FieldLayout, Record, fields

offsets = st.integers(-23 * 60 - 59, 23 * 60 + 59).map(lambda m: timezone(timedelta(minutes=m)))
timestamps = st.builds(sonar.timestamp.write, st.integers(0, 4 * 10**18), offsets)
hostnames = st.from_regex(
    r"[A-Za-z0-9]([-A-Za-z0-9]{0,5}[A-Za-z0-9])?(\.[a-z]{1,5})?", fullmatch=True
)
node_names = st.from_regex(r"[a-z]{1,2}[0-9]{1,3}(-[0-9]{1,2})?", fullmatch=True)
node_ranges = st.sets(node_names, min_size=1, max_size=4).map(
    lambda names: ",".join(compress(names))
)
extended = st.one_of(
    st.just(sonar.UNSET),
    st.just(sonar.INFINITE),
    st.builds(sonar.ExtendedUint, st.integers(0, 2**64 - 3)),
)
base64s = st.binary(max_size=20).map(lambda raw: base64.b64encode(raw).decode())

_PRIMITIVES: dict[str, st.SearchStrategy[Any]] = {
    "NonemptyString": st.text(min_size=1, max_size=8),
    "NonzeroUint": st.integers(1, 2**64 - 1),
    "Timestamp": timestamps,
    "OptionalTimestamp": st.one_of(st.just(""), timestamps),
    "Hostname": hostnames,
    "NodeRange": node_ranges,
}
_VALUES: dict[Any, st.SearchStrategy[Any]] = {
    str: st.text(max_size=8),
    float: st.floats(allow_nan=False, allow_infinity=False),
    bool: st.booleans(),
    sonar.ExtendedUint: extended,
}
_PROSE: dict[tuple[str, str], st.SearchStrategy[Any]] = {
    ("MetadataObject", "attrs"): st.just(()),
    ("MetadataObject", "format"): st.just(0),
    ("MetadataObject", "version"): st.from_regex(
        r"(0|[1-9][0-9]?)\.[0-9]\.[0-9](-[a-z]{1,5})?(\+[a-z0-9-]{1,5})?", fullmatch=True
    ),
    ("SlurmJob", "array_job_id"): st.integers(1, 2**64 - 1),
    ("SlurmJob", "het_job_id"): st.integers(1, 2**64 - 1),
    ("SlurmJob", "nodes"): st.lists(node_ranges, max_size=2).map(tuple),
    ("SysinfoAttributes", "topo_svg"): base64s,
    ("SysinfoAttributes", "topo_text"): base64s,
    ("SysinfoAttributes", "distances"): st.sampled_from([(), ((10,),), ((10, 21), (21, 10))]),
    ("SampleJob", "job"): st.integers(1, 2**64 - 1),
    ("SlurmJob", "job_state"): st.sampled_from(JOB_STATES),
    ("ClusterNodes", "names"): st.lists(node_ranges, min_size=1, max_size=2).map(tuple),
    ("ClusterNodes", "states"): st.lists(st.sampled_from(["IDLE", "DOWN"])).map(tuple),
}
"""Fields that the specification restricts in prose."""


def records(cls: type[Record]) -> st.SearchStrategy[Any]:
    return st.builds(
        cls, **{name: _any(cls, field) for name, field in fields(cls).items() if name != "unknown"}
    )


def _any(cls: type[Record], field: FieldLayout) -> st.SearchStrategy[Any]:
    if (cls.__name__, field.name) in _PROSE:
        return _PROSE[cls.__name__, field.name]
    if field.record is not None:
        record = records(field.record)
        if field.depth:
            return st.lists(record, max_size=2).map(tuple)
        return record if field.default is not None else st.one_of(st.none(), record)
    if field.primitive is not None:
        value = _PRIMITIVES[field.primitive.name]
    elif field.span is not None:
        value = st.integers(*field.span)
    else:
        value = _VALUES[field.value]
    return st.lists(value, max_size=3).map(tuple) if field.depth else value


def _of_data(cls: type[sonar.Envelope]) -> st.SearchStrategy[sonar.Envelope]:
    data = next(data for data, envelope in ENVELOPES.items() if envelope is cls)
    return st.builds(cls, meta=records(sonar.MetadataObject), data=records(data))


_errors = st.lists(records(sonar.ErrorObject), min_size=1, max_size=2).map(tuple)
envelopes: st.SearchStrategy[sonar.Envelope] = st.one_of(
    _of_data(sonar.SampleEnvelope),
    _of_data(sonar.JobsEnvelope),
    _of_data(sonar.SysinfoEnvelope),
    _of_data(sonar.ClusterEnvelope),
    st.builds(sonar.Envelope, meta=records(sonar.MetadataObject), errors=_errors),
)
