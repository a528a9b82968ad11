"""A record as the columns of sacct, with its names, units and rounding.

Source: Slurm Job Accounting Gather Plugin API, ``2_sacct``; sacct of Slurm 22.05.
"""

from collections.abc import Callable, Mapping, Sequence

from ccpipe.node.gather.jobacct.record import (
    CPU,
    DISK,
    ENERGY,
    GPU_MEM,
    MEM,
    PAGES,
    VMEM,
    JobacctInfo,
    Usage,
)

_UNITS = ("", "K", "M", "G", "T", "P", "E")
_MEBI = 2  # position of the unit that averages of disk traffic begin with
_KIBI = 1024
_MINUTE, _HOUR, _DAY = 60, 3600, 86400

Format = Callable[[int], str]


def to_sacct(
    info: JobacctInfo, nodes: Sequence[str] = (), *, convert: bool = True
) -> dict[str, str]:
    """Return sacct's columns of a step; unset values are empty.

    `nodes` are the names of the step's nodes by index. Averages over tasks are rounded down.
    `convert` writes sizes with units, as sacct does without ``--noconvert``.
    """
    size = _exact if convert else str
    rows = {"NTasks": str(info.tasks)}
    rows["AveCPU"] = _text(_average(info, info.usage_in.get(CPU)), _clock)
    for name, resource, usages in _COLUMNS:
        usage = (info.usage_out if usages == "out" else info.usage_in).get(resource, Usage())
        is_disk = resource == DISK
        form = _megabytes if is_disk and convert else size
        rows[f"Ave{name}"] = _text(_average(info, usage), form)
        rows[f"Max{name}"] = _text(usage.max, form)
        rows[f"Max{name}Node"] = _node(usage.max_id.node, nodes) if usage.max is not None else ""
        rows[f"Max{name}Task"] = _text(usage.max_id.task, str) if usage.max is not None else ""
    cpu = info.usage_in.get(CPU, Usage())
    rows["MinCPU"] = _text(cpu.min, _clock)
    rows["MinCPUNode"] = _node(cpu.min_id.node, nodes) if cpu.min is not None else ""
    rows["MinCPUTask"] = _text(cpu.min_id.task, str) if cpu.min is not None else ""
    rows["AveCPUFreq"] = _text(info.cpu_frequency, _frequency if convert else str)
    joules = info.usage_in.get(ENERGY, Usage()).total
    rows["ConsumedEnergy"] = _text(joules, _thousands if convert else str)
    rows["ConsumedEnergyRaw"] = _text(joules, str)
    rows["UserCPU"] = _milliseconds(info.user)
    rows["SystemCPU"] = _milliseconds(info.system)
    rows["TotalCPU"] = _milliseconds(info.user + info.system)
    for direction, used in (("In", info.usage_in), ("Out", info.usage_out)):
        for what, text in _tres(info, used, nodes, size).items():
            rows[f"TRESUsage{direction}{what}"] = text
    return rows


_COLUMNS = (
    ("DiskRead", DISK, "in"),
    ("DiskWrite", DISK, "out"),
    ("Pages", PAGES, "in"),
    ("RSS", MEM, "in"),
    ("VMSize", VMEM, "in"),
)


def _tres(
    info: JobacctInfo, usages: Mapping[str, Usage], nodes: Sequence[str], size: Format
) -> dict[str, str]:
    """Return the columns that list all resources: ``cpu=00:00:03,mem=93585K``."""
    forms = {CPU: _clock, MEM: size, VMEM: size, GPU_MEM: size}
    lists: dict[str, list[str]] = {name: [] for name in _LISTS}
    for resource in sorted(usages):
        usage, form = usages[resource], forms.get(resource, str)
        texts = (
            _text(_average(info, usage), form),
            _text(usage.max, form),
            _node(usage.max_id.node, nodes),
            _text(usage.max_id.task, str),
            _text(usage.min, form),
            _node(usage.min_id.node, nodes),
            _text(usage.min_id.task, str),
            _text(usage.total, form),
        )
        for name, text in zip(_LISTS, texts, strict=True):
            if text and usage.max is not None:
                lists[name].append(f"{resource}={text}")
    return {name: ",".join(parts) for name, parts in lists.items()}


_LISTS = ("Ave", "Max", "MaxNode", "MaxTask", "Min", "MinNode", "MinTask", "Tot")


def _average(info: JobacctInfo, usage: Usage | None) -> int | None:
    if usage is None or usage.total is None or not info.tasks:
        return None
    return usage.total // info.tasks


def _text(value: int | None, form: Format) -> str:
    return "" if value is None else form(value)


def _node(index: int | None, nodes: Sequence[str]) -> str:
    return "" if index is None or index >= len(nodes) else nodes[index]


def _clock(milliseconds: int) -> str:
    """Write a time as ``[D-]HH:MM:SS``, whole seconds rounded down."""
    seconds = milliseconds // 1000
    days, rest = divmod(seconds, _DAY)
    hours, rest = divmod(rest, _HOUR)
    text = f"{hours:02}:{rest // _MINUTE:02}:{rest % _MINUTE:02}"
    return f"{days}-{text}" if days else text


def _milliseconds(microseconds: int) -> str:
    """Write a time as ``MM:SS.mmm``, from an hour on as a clock."""
    seconds, rest = divmod(microseconds, 10**6)
    if seconds >= _HOUR:
        return _clock(seconds * 1000)
    return f"{seconds // _MINUTE:02}:{seconds % _MINUTE:02}.{rest // 1000:03}"


def _exact(size: int) -> str:
    """Write a size with the largest unit of which it is a multiple or a half: ``76.50M``."""
    number, unit = float(size), 0
    while number >= _KIBI and int(number) % (_KIBI // 2) == 0:
        number, unit = number / _KIBI, unit + 1
    return _with_unit(number, unit)


def _megabytes(size: int) -> str:
    return _scaled(size / 2**20, _KIBI, _MEBI)


def _frequency(kilohertz: int) -> str:
    return _scaled(kilohertz, 1000, 1)


def _thousands(number: int) -> str:
    return _scaled(number, 1000, 0)


def _scaled(number: float, base: int, unit: int) -> str:
    """Write a number with two decimals and a unit, or as a whole one."""
    if not number:
        return "0"
    while number > base and unit < len(_UNITS) - 1:
        number, unit = number / base, unit + 1
    return _with_unit(number, unit)


def _with_unit(number: float, unit: int) -> str:
    text = f"{number:.0f}" if number == int(number) else f"{number:.2f}"
    return f"{text}{_UNITS[unit]}"
