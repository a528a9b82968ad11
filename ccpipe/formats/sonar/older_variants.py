"""Older variants of the format, changed into today's layout.

Real archives hold the tags "jobs" and "slurm_jobs" for "job", other names of fields, sacct's
own texts, and ``null`` for a missing field.

Source: Sonar's ``util/formats/newfmt/types.go`` from 0.13-devel to 0.19.
"""

from typing import Any

from ccpipe.formats.sonar.older_sacct import modern_job
from ccpipe.formats.sonar.profiles import Numbers

DEEPEST = 64
"""Maximum nesting of a value: the types have nine levels, unknown fields may have any."""


def modern(envelope: Any, *, nulls: bool, numbers: Numbers = "spec") -> None:
    """Change an envelope that was decoded without types into today's layout, in place.

    `nulls` says whether it may hold any, `numbers` how the result encodes ``time_limit`` and
    ``performance_state``.

    Raises RecursionError if it holds `nulls` and nests too deeply.
    """
    if nulls:
        _drop_nulls(envelope)
    data = envelope.get("data") if isinstance(envelope, dict) else None
    if not isinstance(data, dict):
        return
    if data.get("type") in ("jobs", "slurm_jobs"):
        data["type"] = "job"
    if isinstance(data.get("attributes"), dict):
        minute = 60 if numbers == "sonar" else 1
        _modern_attributes(data["attributes"], data.get("type"), minute)


def _modern_attributes(attributes: dict[str, Any], tag: Any, minute: int) -> None:
    match tag:
        case "sysinfo":
            _rename(attributes, {"os": "os_name", "os-version": "os_release"})
        case "sample":
            for job in _objects(attributes.get("jobs")):
                for process in _objects(job.get("processes")):
                    _rename(process, _OF_PROCESSES)
        case "job":
            _rename(attributes, {"slurm-jobs": "slurm_jobs"})
            for job in _objects(attributes.get("slurm_jobs")):
                if "JobID" in job:
                    modern_job(job, minute=minute)


_OF_PROCESSES = {"resident": "resident_memory", "virtual": "virtual_memory"}


def _objects(value: Any) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _rename(fields: dict[str, Any], names: dict[str, str]) -> None:
    for old, new in names.items():
        if old in fields and new not in fields:
            fields[new] = fields.pop(old)


def unwrap(tree: Any) -> Any:
    """Return the envelope that Sonar's daemon wraps on standard output; anything else as it is."""
    is_wrapped = isinstance(tree, dict) and tree.keys() == {"topic", "key", "client", "value"}
    return tree["value"] if is_wrapped else tree


def _drop_nulls(value: Any, depth: int = 0) -> None:
    if depth > DEEPEST:
        raise RecursionError
    if isinstance(value, dict):
        for key in [key for key, item in value.items() if item is None]:
            del value[key]
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            _drop_nulls(item, depth + 1)


def check_depth(value: Any, depth: int = 0) -> None:
    """Raise RecursionError for a value that nests too deeply for the recursive code here."""
    if depth > DEEPEST:
        raise RecursionError
    if isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            check_depth(item, depth + 1)
