"""Converts the output of older Sonar versions to the current layout.

``upgrade`` converts the format before 0.17, whose objects are flat: a sample ``{"v", "time",
"host", "load", "gpuinfo", "samples"}``, a node ``{"timestamp", "hostname", "description", …}``,
jobs ``{"v", "jobs"}`` with sacct's columns, and errors ``{"v", "error", "timestamp"}``. None has a
cluster. Values without a current field stay as unknown fields.

``modernize`` converts older variants of the current format: archives have the tags "jobs" and
"slurm_jobs" for "job", other field names, and ``null`` for missing fields. Up to 0.13, jobs were
sacct's columns as strings, with sacct's names: those that can be parsed move to their current
field; the others stay as unknown fields, so that nothing is lost.

Source: Sonar's ``doc/OLD-FORMAT.md``, ``util/formats/oldfmt`` of 0.16, and
``util/formats/newfmt/types.go`` from 0.13-devel to 0.19.
"""

import math
import re
from collections.abc import Callable, Mapping
from typing import Any

from ccpipe.errors import DataError
from ccpipe.formats.nodelist import split
from ccpipe.formats.sonar.profiles import Numbers
from ccpipe.formats.sonar.types.primitives import INFINITE, UINT64_MAX, UNSET, ExtendedUint
from ccpipe.formats.sonar.types.timestamp import is_readable, parse


def upgrade(old: Any, numbers: Numbers) -> Any:
    """Return an old object in the current layout, and any other value unchanged.

    `numbers` selects the encoding of ``performance_state`` in the result.
    """
    if not isinstance(old, dict) or "meta" in old or "data" in old:
        return old
    version = old.pop("v", None) or old.pop("version", "")
    meta = {"producer": "sonar", "version": version}
    if isinstance(old.get("error"), str):
        return {"meta": meta, "errors": [{"detail": old.pop("error"), **_renamed(old, _ERROR)}]}
    if isinstance(old.get("samples"), list):
        kind, attributes = "sample", _sample(old, numbers)
    elif "hostname" in old:
        kind, attributes = "sysinfo", _node(old)
    elif isinstance(old.get("jobs"), list):
        kind, attributes = "job", _jobs(old)
    else:
        return old | ({"version": version} if version else {})
    return {"meta": meta, "data": {"type": kind, "attributes": attributes}}


_ERROR = {"timestamp": "time", "time": "time"}


def _renamed(old: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    return {names.get(name, name): value for name, value in old.items()}


def _sample(old: dict[str, Any], numbers: Numbers) -> dict[str, Any]:
    jobs: dict[Any, dict[str, Any]] = {}
    for place, process in enumerate(old.pop("samples")):
        if not isinstance(process, dict):
            continue
        job, user = process.pop("job", 0), process.pop("user", "")
        # A process without a job gets its own record, which is not of a batch job.
        epoch = process.pop("epoch", 0 if job else 1)
        key = (str(job), str(user), str(epoch)) if job else place
        record = {"job": job, "user": user, "epoch": epoch, "processes": []}
        jobs.setdefault(key, record)["processes"].append(_process(process))
    system: dict[str, Any] = {}
    if "load" in old:
        system["cpus"] = old.pop("load")
    if isinstance(gpus := old.get("gpuinfo"), list):
        del old["gpuinfo"]
        system["gpus"] = [_gpu(gpu, i, numbers) for i, gpu in enumerate(gpus)]
    sample = _renamed(old, {"host": "node"}) | {"jobs": list(jobs.values())}
    return sample | ({"system": system} if system else {})


_PROCESS = {
    "cpu%": "cpu_avg",
    "cpukib": "virtual_memory",
    "rssanonkib": "resident_memory",
    "cputime_sec": "cpu_time",
}
_GPU = {
    "fan%": "fan",
    "mode": "compute_mode",
    "musekib": "memory",
    "cutil%": "ce_util",
    "mutil%": "memory_util",
    "tempc": "temperature",
    "poww": "power",
    "powlimw": "power_limit",
    "cez": "ce_clock",
    "memz": "memory_clock",
}


def _process(old: dict[str, Any]) -> dict[str, Any]:
    """Rename a process's fields; its GPU usage is divided evenly among its GPUs."""
    used = old.pop("gpus", None)
    if isinstance(used, str) and re.fullmatch(r"[0-9]{1,9}(?:,[0-9]{1,9})*", used):
        gpus = [int(index) for index in used.split(",")]
        util, memory_util = (_or_zero(old.pop(k, 0)) / len(gpus) for k in ("gpu%", "gpumem%"))
        memory = int(_or_zero(old.pop("gpukib", 0))) // len(gpus)
        use = {"gpu_util": util, "gpu_memory": memory, "gpu_memory_util": memory_util}
        old["gpus"] = [{"index": index, **use} for index in gpus]
    return _renamed(old, _PROCESS)


def _or_zero(value: Any) -> float:
    return value if isinstance(value, int | float) else 0.0


def _gpu(old: Any, index: int, numbers: Numbers) -> Any:
    if not isinstance(old, dict):
        return old
    state = re.fullmatch("P([0-9]{1,3})", str(old.get("perf", "")))
    if state:
        del old["perf"]
        old["performance_state"] = int(state[1]) + (1 if numbers == "sonar" else 2)
    return {"index": index, **_renamed(old, _GPU)}


_NODE = {"timestamp": "time", "hostname": "node"}
_NODE_GPU = {
    "bus_addr": "address",
    "arch": "architecture",
    "mem_size_kib": "memory",
    "power_limit_watt": "power_limit",
    "max_power_limit_watt": "max_power_limit",
    "min_power_limit_watt": "min_power_limit",
    "max_ce_clock_mhz": "max_ce_clock",
    "max_mem_clock_mhz": "max_memory_clock",
}
_DESCRIPTION = re.compile(
    r"([0-9]{1,9})x([0-9]{1,9})( \(hyperthreaded\))? (.+?), [0-9]+ Gi?B(?:, .*)?"
)


def _node(old: dict[str, Any]) -> dict[str, Any]:
    node = _renamed(old, _NODE)
    found = _DESCRIPTION.fullmatch(str(node.get("description", "")))
    if found:
        sockets, cores, threads = int(found[1]), int(found[2]), 2 if found[3] else 1
        if node.get("cpu_cores", 0) == sockets * cores * threads:
            node.pop("cpu_cores")
            node |= {"sockets": sockets, "cores_per_socket": cores, "threads_per_core": threads}
            node["cpu_model"] = found[4]
    if isinstance(node.get("mem_gb"), int):
        node["memory"] = node.pop("mem_gb") * 2**20
    if isinstance(gpus := node.pop("gpu_info", None), list):
        node["cards"] = [_renamed(gpu, _NODE_GPU) for gpu in gpus if isinstance(gpu, dict)]
    return node


def _jobs(old: dict[str, Any]) -> dict[str, Any]:
    """Convert jobs; their time, which the old object lacks, is the latest one in any job."""
    jobs = [job for job in old.pop("jobs") if isinstance(job, dict)]
    texts = [
        text
        for job in jobs
        for name in ("Submit", "Start", "End")
        if isinstance(text := job.get(name), str) and text and is_readable(text)
    ]
    time = max(texts, key=lambda text: parse(text) or 0, default="")
    return {"time": time, **_renamed(old, {"timestamp": "time"}), "slurm_jobs": jobs}


DEEPEST = 64
"""Maximum nesting of a value: the types have nine levels, unknown fields any number."""


def modernize(envelope: Any, *, nulls: bool, numbers: Numbers = "spec") -> None:
    """Convert an envelope that was decoded without types to the current layout, in place.

    `nulls`: whether it may contain ``null``; `numbers`: the encoding of ``time_limit`` and
    ``performance_state`` in the result.

    Raises RecursionError if `nulls` is true and it nests too deeply.
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
        _modernize_attributes(data["attributes"], data.get("type"), minute)


def _modernize_attributes(attributes: dict[str, Any], tag: Any, minute: int) -> None:
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
                    modernize_job(job, minute=minute)


_OF_PROCESSES = {"resident": "resident_memory", "virtual": "virtual_memory"}


def _objects(value: Any) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _rename(fields: dict[str, Any], names: dict[str, str]) -> None:
    for old, new in names.items():
        if old in fields and new not in fields:
            fields[new] = fields.pop(old)


def unwrap(tree: Any) -> Any:
    """Return the envelope that Sonar's daemon wraps on stdout; any other value unchanged."""
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


def modernize_job(job: dict[str, Any], *, minute: int) -> None:
    """Convert one job in place; `minute` is the number of ``time_limit`` units per minute."""
    _read_number(job)
    for old, (new, read) in _COLUMNS.items():
        if isinstance(job.get(old), str) and new not in job:
            _move(job, old, job, new, read)
    if isinstance(job.get("TimelimitRaw"), str) and "time_limit" not in job:
        _move(job, "TimelimitRaw", job, "time_limit", lambda text: _limit(text, minute))
    sacct: dict[str, Any] = {}
    for name, read in _SACCT.items():
        if isinstance(job.get(name), str):
            _move(job, name, sacct, name, read)
    if sacct:
        job.setdefault("sacct", sacct)


def _read_number(job: dict[str, Any]) -> None:
    shown, raw = job.get("JobID"), job.get("JobIDRaw")
    if not isinstance(shown, str) or not isinstance(raw, str) or "job_id" in job:
        return
    from ccpipe.formats.slurm.records import SlurmId  # its package imports all Slurm formats

    try:
        number = SlurmId.read(shown, raw)
    except DataError:
        return
    del job["JobID"], job["JobIDRaw"]
    job.update(
        job_id=number.job,
        job_step=number.step,
        array_job_id=number.array_job or 0,
        array_task_id=number.array_task or 0,
        het_job_id=number.het_job or 0,
        het_job_offset=number.het_offset or 0,
    )


def _move(
    source: dict[str, Any], old: str, target: dict[str, Any], new: str, read: "_Reader"
) -> None:
    try:
        target[new] = read(source[old])
    except ValueError:
        return
    del source[old]


_Reader = Callable[[str], Any]


def _number(text: str) -> int:
    if text and not re.fullmatch("[0-9]{1,20}", text):
        raise ValueError(text)
    return _in_64_bits(int(text or 0))


def _in_64_bits(number: int) -> int:
    if number > UINT64_MAX:
        raise ValueError(number)
    return number


def _kilobytes(text: str) -> int:
    """Read a size such as ``1.5G``; sacct writes bytes without a suffix."""
    if not text:
        return 0
    found = re.fullmatch(r"([0-9]{1,15}(?:\.[0-9]{1,9})?)([KMGTP]?)", text)
    if found is None:
        raise ValueError(text)
    power = "KMGTP".index(found[2]) if found[2] else -1
    return _in_64_bits(math.ceil(float(found[1]) * 1024.0**power))


def _seconds(text: str) -> int:
    """Read a duration ``[days-[hours:]]minutes:seconds[.fraction]``, truncated to seconds."""
    if not text:
        return 0
    found = _DURATION.fullmatch(text)
    if found is None:
        raise ValueError(text)
    days, hours, minutes, seconds = (int(piece or 0) for piece in found.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


_DURATION = re.compile(
    r"(?:([0-9]{1,9})-)?(?:([0-9]{1,9}):)?([0-9]{1,9}):([0-9]{1,9})(?:\.[0-9]+)?"
)


def _time(text: str) -> str:
    if text in ("", "Unknown", "None"):
        return ""
    if not is_readable(text):
        raise ValueError(text)
    return text


def _limit(text: str, minute: int) -> int:
    if text == "UNLIMITED":
        return INFINITE.wire
    if text in ("", "Partition_Limit"):
        return UNSET.wire
    return ExtendedUint(_number(text) * minute).wire


def _priority(text: str) -> int:
    return ExtendedUint(_number(text)).wire if text else UNSET.wire


def _code(text: str) -> int:
    code, _, signal = text.partition(":")
    if signal not in ("", "0"):
        raise ValueError(text)
    return _number(code)


def _state(text: str) -> str:
    return text.partition(" ")[0]  # drop the user of "CANCELLED by 1000"


def _nodes(text: str) -> list[str]:
    try:
        return split(text) if text else []
    except DataError as error:
        raise ValueError(text) from error


_COLUMNS: dict[str, tuple[str, _Reader]] = {
    "JobName": ("job_name", str),
    "State": ("job_state", _state),
    "User": ("user_name", str),
    "Account": ("account", str),
    "Submit": ("submit_time", _time),
    "Partition": ("partition", str),
    "Reservation": ("reservation", str),
    "NodeList": ("nodes", _nodes),
    "Priority": ("priority", _priority),
    "Layout": ("distribution", str),
    "ReqCPUS": ("requested_cpus", _number),
    "ReqMem": ("requested_memory_per_node", _kilobytes),
    "ReqNodes": ("requested_node_count", _number),
    "Start": ("start_time", _time),
    "Suspended": ("suspend_time", _seconds),
    "End": ("end_time", _time),
    "ExitCode": ("exit_code", _code),
}

_SACCT: dict[str, _Reader] = {
    "MinCPU": _seconds,
    "AllocTRES": str,
    "AveCPU": _seconds,
    "AveDiskRead": _kilobytes,
    "AveDiskWrite": _kilobytes,
    "AveRSS": _kilobytes,
    "AveVMSize": _kilobytes,
    "ElapsedRaw": _number,
    "SystemCPU": _seconds,
    "UserCPU": _seconds,
    "MaxRSS": _kilobytes,
    "MaxVMSize": _kilobytes,
}
