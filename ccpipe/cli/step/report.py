"""A step's resource usage, as a table or JSON."""

import sys
from pathlib import Path
from typing import Any

import msgspec

from ccpipe.errors import CreateError
from ccpipe.node.gather.jobacct import JobacctInfo, to_sacct
from ccpipe.node.gather.profile import Step


def describe(info: JobacctInfo, step: Step, code: int | None, seconds: float) -> dict[str, Any]:
    """Return sacct's columns, with the raw numbers.

    The state requires an exit code, which only a process's parent knows.
    """
    nodes = [""] * step.node_index + [step.node]
    end = {} if code is None else {"State": "FAILED" if code else "COMPLETED", "ExitCode": code}
    return {
        "JobID": f"{step.job}.{step.step}",
        "NodeList": step.node,
        **end,
        "Elapsed": round(seconds, 3),
        **to_sacct(info, nodes),
        "raw": msgspec.to_builtins(info, str_keys=True),
    }


TABLE = (
    ("JobID", "NodeList", "State", "ExitCode", "Elapsed"),
    ("UserCPU", "SystemCPU", "TotalCPU", "AveCPUFreq", "ConsumedEnergy"),
    ("MaxRSS", "MaxVMSize", "MaxPages", "MaxDiskRead", "MaxDiskWrite"),
)
"""The columns of the table, in groups that fit a terminal."""


def table(row: dict[str, Any]) -> str:
    lines = []
    for names in TABLE:
        cells = [str(row.get(name, "")) for name in names]
        widths = [max(len(name), len(cell), 10) for name, cell in zip(names, cells, strict=True)]
        rows = (names, ["-" * width for width in widths], cells)
        for line in rows:
            padded = (f"{cell:>{width}}" for cell, width in zip(line, widths, strict=True))
            lines.append(" ".join(padded).rstrip())
    return "\n".join(lines) + "\n"


def write_report(
    info: JobacctInfo, step: Step, code: int, seconds: float, output: str, path: Path | None
) -> None:
    """Write the report of a command to stderr, or to a file.

    Raises CreateError if the file cannot be written.
    """
    row = describe(info, step, code, seconds)
    text = table(row) if output == "table" else f"{_json(row)}\n"
    if path is None:
        sys.stderr.write(text)
    else:
        _write(path, text, "w")


def add_report(
    info: JobacctInfo, step: Step, seconds: float, output: str, path: Path | None
) -> None:
    """Write the report of one step of many to stdout, or at the end of a file.

    A table is followed by an empty line; JSON has one object per line. Raises CreateError if the
    file cannot be written.
    """
    row = describe(info, step, None, seconds)
    text = table(row) if output == "table" else msgspec.json.encode(row).decode()
    if path is None:
        print(text, flush=True)
    else:
        _write(path, f"{text}\n", "a")


def _write(path: Path, text: str, mode: str) -> None:
    try:
        with path.open(mode) as file:
            file.write(text)
    except OSError as error:
        raise CreateError(f"{path}: {error.strerror}") from None


def _json(row: dict[str, Any]) -> str:
    return msgspec.json.format(msgspec.json.encode(row), indent=2).decode()
