"""What Sonar wrote before 0.17 in its old format, turned into envelopes as they are decoded today.

Its objects are flat: a sample ``{"v", "time", "host", "load", "gpuinfo", "samples"}``, a node
``{"timestamp", "hostname", "description", …}``, jobs ``{"v", "jobs"}`` with sacct's columns, and
errors ``{"v", "error", "timestamp"}``. None names its cluster. What has no field today stays as an
unknown field.

Source: Sonar's ``doc/OLD-FORMAT.md`` and ``util/formats/oldfmt`` of 0.16.
"""

import re
from collections.abc import Mapping
from typing import Any

from ccpipe.formats.sonar.profiles import Numbers
from ccpipe.formats.sonar.types.timestamp import is_readable, parse


def upgrade(old: Any, numbers: Numbers) -> Any:
    """Return an old object in today's layout, and anything else as it is.

    `numbers` is how the result is to encode ``performance_state``.
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
        # Processes without a job belong together with no other, and not to a batch job.
        epoch = process.pop("epoch", 0 if job else 1)
        key = (str(job), str(user), str(epoch)) if job else place
        record = {"job": job, "user": user, "epoch": epoch, "processes": []}
        jobs.setdefault(key, record)["processes"].append(_process(process))
    system: dict[str, Any] = {}
    if "load" in old:
        system["cpus"] = old.pop("load")
    if isinstance(cards := old.get("gpuinfo"), list):
        del old["gpuinfo"]
        system["gpus"] = [_card(card, i, numbers) for i, card in enumerate(cards)]
    sample = _renamed(old, {"host": "node"}) | {"jobs": list(jobs.values())}
    return sample | ({"system": system} if system else {})


_PROCESS = {
    "cpu%": "cpu_avg",
    "cpukib": "virtual_memory",
    "rssanonkib": "resident_memory",
    "cputime_sec": "cpu_time",
}
_CARD = {
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
    """Rename a process's fields; what it does on several cards is divided evenly among them."""
    used = old.pop("gpus", None)
    if isinstance(used, str) and re.fullmatch(r"[0-9]{1,9}(?:,[0-9]{1,9})*", used):
        cards = [int(index) for index in used.split(",")]
        util, memory_util = (_number(old.pop(k, 0)) / len(cards) for k in ("gpu%", "gpumem%"))
        memory = int(_number(old.pop("gpukib", 0))) // len(cards)
        use = {"gpu_util": util, "gpu_memory": memory, "gpu_memory_util": memory_util}
        old["gpus"] = [{"index": index, **use} for index in cards]
    return _renamed(old, _PROCESS)


def _number(value: Any) -> float:
    return value if isinstance(value, int | float) else 0.0


def _card(old: Any, index: int, numbers: Numbers) -> Any:
    if not isinstance(old, dict):
        return old
    state = re.fullmatch("P([0-9]{1,3})", str(old.get("perf", "")))
    if state:
        del old["perf"]
        old["performance_state"] = int(state[1]) + (1 if numbers == "sonar" else 2)
    return {"index": index, **_renamed(old, _CARD)}


_NODE = {"timestamp": "time", "hostname": "node"}
_NODE_CARD = {
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
    if isinstance(cards := node.pop("gpu_info", None), list):
        node["cards"] = [_renamed(card, _NODE_CARD) for card in cards if isinstance(card, dict)]
    return node


def _jobs(old: dict[str, Any]) -> dict[str, Any]:
    """Date jobs, whose old object has no time, by the latest time that they mention."""
    jobs = [job for job in old.pop("jobs") if isinstance(job, dict)]
    texts = [
        text
        for job in jobs
        for name in ("Submit", "Start", "End")
        if isinstance(text := job.get(name), str) and text and is_readable(text)
    ]
    time = max(texts, key=lambda text: parse(text) or 0, default="")
    return {"time": time, **_renamed(old, {"timestamp": "time"}), "slurm_jobs": jobs}
