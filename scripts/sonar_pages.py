"""Write ``format.md``, ``metrics.md`` and ``sonar.schema.json`` in ``docs/sonar/`` from the types.

::

    python scripts/sonar_pages.py docs/sonar
"""

import ast
import functools
import inspect
import itertools
import json
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from ccpipe.formats.sonar import profiles
from ccpipe.formats.sonar.types import cluster, envelope, job, meta, primitives, sample, sysinfo
from ccpipe.formats.sonar.types.primitives import (
    UINT64_MAX,
    ExtendedUint,
    FieldLayout,
    Primitive,
    Record,
    fields,
)
from ccpipe.formats.sonar.types.sample import (
    SampleAttributes,
    SampleDisk,
    SampleGpu,
    SampleJob,
    SampleProcess,
    SampleProcessGpu,
    SampleSystem,
)
from ccpipe.translate.sonar.sonar_metrics import (
    BOOT,
    CPU_USED,
    DISK,
    GPU,
    JOB_FLOATS,
    JOB_GPU,
    JOB_INTS,
    PERFORMANCE_STATE,
    SYSTEM,
    SonarMetric,
)

MODULES = (meta, sysinfo, sample, job, cluster)
"""Where the types are, in the order of the page."""

_HEAD = """\
# Sonar's JSON

Every type of the Sonar JSON format output specification (0.16), with the additions of Sonar up to
0.19. This page and [sonar.schema.json](sonar.schema.json) are generated from the types
(`python scripts/sonar_pages.py docs/sonar`), and a test checks that both are current.

```python
from ccpipe import sonar

envelopes = sonar.decode(open("samples.json", "rb").read())
for envelope in envelopes: ...
for bad in envelopes.rejected:  # each with line, offset, path, rule, value and its original bytes
    print(bad)
line = sonar.encode(envelope, profile="jobanalyzer")
```

`sonar.Decoder` parses a stream in blocks, in bounded memory; `sonar.Envelopes` is a batch of
envelopes in a pipeline. `sonar.roll_up` merges similar processes into one record, with a synthetic
process ID above `pid_max` that is stable across samples, and `ccpipe.formats.nodelist` parses and
formats lists of nodes.

An omitted field has the default value of its type: zero, the empty string, false, the empty
array. Memory and volumes are in kilobytes of 1024 bytes, clocks in megahertz, power in watts,
utilization in percent, unless a field's description has another unit.

A **strict** decoder enforces all rules below, that no key of an object is repeated, that
`meta.version` is a semantic version and `meta.format` is 0, and that an array's task or a
heterogeneous job's part names its job. A **tolerant** one, the default, also accepts
deviations found in real archives: the tags `jobs` and `slurm_jobs` for `job`; values
that are missing, empty or `null` although required; times with a fraction of a second or with
`+00:00`; `"errors":[]` alongside data; `os`, `os-version`, `resident`, `virtual`, `slurm-jobs`
and sacct's own columns as field names; and unknown fields, which it keeps and the encoder writes
back. It also reads Sonar's old JSON format (before 0.17) with flat objects: a performance state
`P8` or a description "2x14 (hyperthreaded) Intel …" is converted to the current fields, jobs get
the latest time that they mention, and the cluster is unknown. Job numbers there are taken as batch
jobs; processes without one are separate jobs, with epoch 1. Both decoders read the standard output
of Sonar's daemon, `{"topic", "key", "client", "value"}`, and reject data alongside errors, wrong
types, integers beyond 64 bits and invalid times.

`ccpipe convert` and `ccpipe validate` also read Sonar's old CSV, detected by the beginning of a
file: `v=0.13.0,time=…,host=…`. Lines of Sonar before 0.7, whose fields have no names, are rejected:
they do not identify processes.
"""


def types_page() -> str:
    """Return ``format.md``."""
    return "\n".join([_HEAD, *_primitives(), *_envelopes(), *_types(), *_profiles()])


def schema() -> dict[str, Any]:
    """Return ``sonar.schema.json``: the rules of a strict decoder that JSON Schema can express."""
    parts = {cls.__name__: _object(cls) for module in MODULES for cls in _records(module)}
    for data in envelope.ENVELOPES:
        tags = [data.type, "jobs"] if data is envelope.JobsData else [data.type]
        part = _object(data)
        part["properties"]["type"] = {"enum": tags}
        parts[data.__name__] = part | {"required": ["type", "attributes"]}
    data_of = [{"$ref": f"#/$defs/{data.__name__}"} for data in envelope.ENVELOPES]
    errors = {"type": "array", "minItems": 1, "items": {"$ref": "#/$defs/ErrorObject"}}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "An envelope of Sonar's JSON format",
        "type": "object",
        "properties": {
            "meta": {"$ref": "#/$defs/MetadataObject"},
            "data": {"anyOf": data_of},
            "errors": errors,
        },
        "required": ["meta"],
        "oneOf": [{"required": ["data"]}, {"required": ["errors"]}],
        "additionalProperties": False,
        "$defs": dict(sorted(parts.items())),
    }


def _object(cls: type[Record]) -> dict[str, Any]:
    meanings = texts(cls)
    return {
        "type": "object",
        "description": _prose(cls),
        "properties": {
            name: {"description": meanings[name], **_value(field)}
            for name, field in fields(cls).items()
        },
        "required": [
            name
            for name, field in fields(cls).items()
            if field.primitive is not None and field.primitive.required and not field.depth
        ],
        "additionalProperties": False,
    }


_SCHEMAS: dict[Any, dict[str, Any]] = {
    str: {"type": "string"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    ExtendedUint: {"type": "integer", "minimum": 0, "maximum": UINT64_MAX},
}


def _value(field: FieldLayout) -> dict[str, Any]:
    value: dict[str, Any]
    if field.record is not None:
        value = {"$ref": f"#/$defs/{field.record.__name__}"}
    elif field.span is not None:
        value = {"type": "integer", "minimum": field.span[0], "maximum": field.span[1]}
    else:
        value = _SCHEMAS[field.value]
    if field.primitive is not None:
        value = value | field.primitive.schema
    for _ in range(field.depth):
        value = {"type": "array", "items": value}
    return value


def _records(module: ModuleType) -> list[type[Record]]:
    """Return a module's types, containing types before contained ones."""
    return [
        value
        for value in vars(module).values()
        if isinstance(value, type)
        and issubclass(value, Record)
        and value.__module__ == module.__name__
    ][::-1]


@functools.cache
def texts(cls: type[Record]) -> dict[str, str]:
    """Return the docstring below each field of a type in its source."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(cls)))
    body = tree.body[0].body if isinstance(tree.body[0], ast.ClassDef) else []
    return {
        field.target.id: inspect.cleandoc(text.value.value)
        for field, text in itertools.pairwise(body)
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(text, ast.Expr)
        and isinstance(text.value, ast.Constant)
        and isinstance(text.value.value, str)
    }


def _primitives() -> Iterator[str]:
    yield "## Primitive types\n"
    yield "| type | a value |\n|---|---|"
    yield "| `Uint64` | must be an integer from 0 to 2⁶⁴-1 |"
    yield "| `Int64` | must be an integer from -2⁶³ to 2⁶³-1 |"
    for name in primitives.__all__:
        for note in getattr(getattr(primitives, name), "__metadata__", ()):
            if isinstance(note, Primitive):
                yield f"| `{note.name}` | {note.rule} |"
    yield "| `ExtendedUint` | is written as 0 where unset, 1 where infinite, v+2 for any other v |"
    yield ""


def _envelopes() -> Iterator[str]:
    yield "## Envelopes\n"
    yield "The top-level objects. Exactly one of `data` and `errors` is present.\n"
    yield "| field | type | meaning |\n|---|---|---|"
    yield "| `meta` | `MetadataObject` | Information about the producer and data format. |"
    yield "| `data` | one of those below | Data, for successful probes. |"
    yield "| `errors` | array of `ErrorObject` | Error information, for unsuccessful probes. |\n"
    yield "| envelope | `data.type` | `data.attributes` |\n|---|---|---|"
    for data, cls in envelope.ENVELOPES.items():
        attributes = fields(data)["attributes"].record
        assert attributes is not None
        yield f"| `{cls.__name__}` | `{data.type}` | `{attributes.__name__}` |"
    yield ""


def _types() -> Iterator[str]:
    for module in MODULES:
        for cls in _records(module):
            yield f"## {cls.__name__}\n"
            yield f"{_prose(cls)}\n"
            yield "| field | type | meaning |\n|---|---|---|"
            meanings = texts(cls)
            for name, field in fields(cls).items():
                cell = meanings[name].replace("|", "\\|")
                paragraphs = [" ".join(piece.split()) for piece in cell.split("\n\n")]
                yield f"| `{name}` | {_kind(field)} | {'<br>'.join(paragraphs)} |"
            yield ""


_PLAIN = {str: "string", float: "float64", bool: "bool", ExtendedUint: "`ExtendedUint`"}


def _kind(field: FieldLayout) -> str:
    if field.record is not None:
        name = f"`{field.record.__name__}`"
    elif field.primitive is not None:
        name = f"`{field.primitive.name}`"
    elif field.span is not None:
        name = "`Int64`" if field.span[0] else "`Uint64`"
    else:
        name = _PLAIN[field.value]
    return "array of " * field.depth + name


def _profiles() -> Iterator[str]:
    yield "## Profiles\n"
    yield f"{_prose(profiles)}\n"
    yield "Fields that a profile writes even if they have their default value:\n"
    yield "| type | field | profiles |\n|---|---|---|"
    writers: dict[tuple[str, str], list[str]] = {}
    for name, style in profiles.STYLES.items():
        for cls, always in style.always.items():
            for field in fields(cls):
                if field in always:
                    writers.setdefault((cls.__name__, field), []).append(name)
    for (cls_name, field), names in sorted(writers.items()):
        yield f"| `{cls_name}` | `{field}` | {', '.join(names)} |"
    yield ""


def _prose(thing: Any) -> str:
    return (inspect.getdoc(thing) or "").replace("::\n\n", "").replace("``", "`")


SECTIONS: tuple[tuple[str, type[Record], tuple[SonarMetric, ...], str], ...] = (
    (
        "Node",
        SampleSystem,
        (CPU_USED, *SYSTEM, BOOT),
        (
            "100 percent is one hardware thread. `boot_time` is in seconds since 1970. Sonar "
            "writes 0 for what it does not know: `mem_used`, `proc_run` and `proc_total` are "
            "omitted where they are 0, and the loads where all of them and `proc_total` are."
        ),
    ),
    (
        "Accelerators",
        SampleGpu,
        (*GPU, PERFORMANCE_STATE),
        (
            "`type-id` is the GPU's UUID. `acc_perf_state` is omitted if unset or infinite; fan, "
            "temperature, power, its limit and clocks, which are 0 if unknown, if they are 0; and "
            "for a failing GPU all values of 0."
        ),
    ),
    (
        "Disks",
        SampleDisk,
        DISK,
        (
            "Tagged `stype=device`, with the device in `stype-id`. Gains are since the last "
            "sample, also of a counter that wrapped around at 32 bits."
        ),
    ),
    (
        "Jobs",
        SampleProcess,
        (*JOB_FLOATS, *JOB_INTS),
        (
            "Sums over the job's processes on the node. Tagged `stype=job`; `stype-id` is the "
            "job's number, or `<job>.<epoch>` if it is not a batch job; `user` is its user. "
            "`job_processes` counts all rolled-up processes, `job_threads` includes their main "
            "threads. Counters of a process include its children that ended: a gain is "
            "counted once, for the child or its parent. A process that is new since the node's "
            "last sample counts with all of its `cpu_time`, `data_read` and `data_written`; in the "
            "node's first sample there is only `job_cpu_used`, from `cpu_avg`. A job's usage is "
            "capped at what the whole node used, plus a second for each of its `cpus`; where that "
            "is unknown, what is new counts with `cpu_avg` at most. `job_read_bw` and "
            "`job_write_bw` are omitted while no process has read or written anything, as where "
            "Sonar may not see it."
        ),
    ),
    (
        "Jobs on accelerators",
        SampleProcessGpu,
        JOB_GPU,
        (
            "As for jobs, with the GPU's UUID as `type-id`. 0 may mean unknown: memory is omitted "
            "if it is 0, its share if both are, and utilization of 0 unless the whole GPU was not "
            "utilized."
        ),
    ),
)

_METRICS_HEAD = """\
# Sonar's samples as metrics

The mapping used by the translators `sonar_to_cc` and `cc_to_sonar`. This page is generated from
their table (`python scripts/sonar_pages.py docs/sonar`), and a test checks that it is current.

Every metric carries the tags `cluster`, `hostname` and `type`, and the sample's time. A gain is the
increase of a counter since the node's last sample. It is absent for the first sample, after a
reboot, if a counter decreased, and for a late sample; also for a sample that is more than
`max_future` (10 minutes) ahead of the bridge's clock, which is logged: later samples grow by the
one before it. With `state_file`, gains continue after a restart of the bridge. A name that is
invalid as a tag (for example, because it contains a newline) is percent-encoded.
"""

_EVENTS = """\
## Everything else

| Sonar | ClusterCockpit |
|---|---|
| sysinfo | event `topology`, function `sysinfo` |
| job | events `job`, functions `start_job` and `stop_job`, as cc-backend expects them, each once |
| cluster | events `nodestate`, function `nodestate`, of at most 1000 nodes each |
| errors in a sample | log of the component `sonar`, level `warn` |
| an error envelope | log of the component `sonar`, level `error` |
| any envelope, whole | event `sonar`; its function is `sample`, `sysinfo`, `job`, `cluster` or \
`error` |

These become dead letters with the reason: an envelope without a time or with one outside of 1678 to
2262; job records without a number or cluster, with unreadable nodes, or of ended jobs with an
unknown user; lines with a field in Sonar but without `hostname`, a job's number, a time or a value
in the range of the field. Other lines are ignored.

The event `sonar` contains the complete envelope as specified, so nothing is lost: `cc_to_sonar`
restores the same envelope from it, and ignores other messages for that node and time. With
`envelopes = false` it is not sent, and the rest of this page applies.

## Conversion without the event

Metrics are converted back to a sample with these fields:
"""

_REST = """
Integers survive up to 2⁵³. Times survive to the second, and are written in UTC. A job has one
process, which represents all of them like a rolled-up process: its `rolledup` is the number of the
others, its `pid` is synthetic, and its `cpu_util` is `job_cpu_used` or, without it, the sum of
`job_user_cpu` and `job_sys_cpu`. Its `cpu_time` is the sum of that over time since the bridge first
saw the job on the node, and `cpu_avg` the mean over that time; with `state_file` they continue
after a restart. GPUs are numbered in order of arrival. A sample without any metric is lost.
These fields do not survive:
"""

_TAIL = """
For jobs, the fields known to cc-backend survive: `job_id`, `job_name`, `job_state` (RUNNING at
the start, then the final state), `user_name`, `account`, `partition`, `nodes`, `start_time`,
`end_time`, `submit_time`, `time_limit`, `array_job_id`, `requested_memory_per_node` (in whole
MByte), `requested_cpus` and `requested_node_count`; and, in the metadata,
`array_task_id`, `het_job_id`, `het_job_offset`, `reservation`, `distribution` and
`allocated_resources`. The record of an end contains all fields of the start, as long as the bridge
remembers it (100 000 starts; with `state_file` also after a restart), and `sacct.ElapsedRaw`. Steps
and jobs that never started do not survive. For a cluster, its node states survive; for a node's
description, the contents of `topology`: all except `topo_svg`, `topo_text` and `distances`. Nothing
of `meta` survives.
"""


def metrics_page() -> str:
    """Return ``metrics.md``."""
    parts = [_METRICS_HEAD]
    for title, record, rows, text in SECTIONS:
        parts.append(f"## {title}\n\n{text}\n\n" + "\n".join(_metrics_table(record, rows)) + "\n")
    lists = (_bullets(_survivors()), _bullets(_lost()))
    return "\n".join([*parts, _EVENTS]) + lists[0] + "\n" + _REST + lists[1] + "\n" + _TAIL


def _metrics_table(record: type[Record], rows: tuple[SonarMetric, ...]) -> Iterator[str]:
    yield "| metric | unit | value | type | made of | how |\n|---|---|---|---|---|---|"
    for row in rows:
        scale = {1: "", 1024: ", times 1024", 1 / 1024: ", through 1024"}[row.scale]
        of = f"`{record.__name__}.{row.field}`"
        how = f"{row.how}{scale}"
        yield f"| `{row.name}` | {row.unit} | {row.kind.__name__} | {row.types} | {of} | {how} |"


_SAMPLE_TYPES: tuple[type[Record], ...] = (
    SampleAttributes,
    SampleSystem,
    SampleGpu,
    SampleDisk,
    SampleJob,
    SampleProcess,
    SampleProcessGpu,
)
_BY_TAGS = {
    "SampleAttributes": {"time", "cluster", "node", "system", "jobs", "errors"},
    "SampleSystem": {"gpus"},
    "SampleGpu": {"uuid"},
    "SampleJob": {"job", "user", "epoch", "processes"},
    "SampleProcess": {"gpus", "cpu_util"},
    "SampleProcessGpu": {"uuid"},
}
"""Fields kept in tags, in times, in log lines, and as containers of others."""


def _survivors() -> dict[str, list[str]]:
    kept = {cls.__name__: set(_BY_TAGS.get(cls.__name__, ())) for cls in _SAMPLE_TYPES}
    for _, record, rows, _ in SECTIONS:
        kept[record.__name__] |= {row.field for row in rows if row.survives}
    return {
        c.__name__: [name for name in fields(c) if name in kept[c.__name__]] for c in _SAMPLE_TYPES
    }


def _lost() -> dict[str, list[str]]:
    kept = _survivors()
    return {
        c.__name__: [name for name in fields(c) if name not in kept[c.__name__]]
        for c in _SAMPLE_TYPES
    }


def _bullets(names: dict[str, list[str]]) -> str:
    return "".join(
        f"\n- `{cls}`: " + ", ".join(f"`{name}`" for name in members)
        for cls, members in names.items()
        if members
    )


def main(directory: Path) -> None:
    """Write the three files."""
    text = json.dumps(schema(), indent=1, ensure_ascii=False) + "\n"
    (directory / "format.md").write_text(types_page(), encoding="utf-8")
    (directory / "sonar.schema.json").write_text(text, encoding="utf-8")
    (directory / "metrics.md").write_text(metrics_page(), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
