"""What a step used, as a table or as JSON."""

import sys
from pathlib import Path
from typing import Any

import msgspec

from ccpipe.errors import UnavailableError
from ccpipe.node.gather.jobacct import JobacctInfo, to_sacct
from ccpipe.node.gather.profile import Step


def describe(info: JobacctInfo, step: Step, code: int, seconds: float) -> dict[str, Any]:
    """Return the columns of sacct, and the numbers that they are made of."""
    nodes = [""] * step.node_index + [step.node]
    state = "COMPLETED" if code == 0 else "FAILED"
    return {
        "JobID": f"{step.job}.{step.step}",
        "NodeList": step.node,
        "State": state,
        "ExitCode": code,
        "Elapsed": round(seconds, 3),
        **to_sacct(info, nodes),
        "raw": msgspec.to_builtins(info, str_keys=True),
    }


TABLE = (
    ("JobID", "NodeList", "State", "ExitCode", "Elapsed"),
    ("UserCPU", "SystemCPU", "TotalCPU", "AveCPUFreq", "ConsumedEnergy"),
    ("MaxRSS", "MaxVMSize", "MaxPages", "MaxDiskRead", "MaxDiskWrite"),
)
"""The columns of the table, in blocks that fit a terminal."""


def table(row: dict[str, Any]) -> str:
    """Return the most important columns, right-aligned under sacct's names."""
    lines = []
    for names in TABLE:
        cells = [str(row[name]) for name in names]
        widths = [max(len(name), len(cell), 10) for name, cell in zip(names, cells, strict=True)]
        rows = (names, ["-" * width for width in widths], cells)
        for line in rows:
            padded = (f"{cell:>{width}}" for cell, width in zip(line, widths, strict=True))
            lines.append(" ".join(padded).rstrip())
    return "\n".join(lines) + "\n"


def write_report(
    info: JobacctInfo, step: Step, code: int, seconds: float, output: str, path: Path | None
) -> None:
    """Write the report to stderr, or to a file.

    Raises
    ------
    UnavailableError
        where the file cannot be written

    """
    row = describe(info, step, code, seconds)
    text = table(row) if output == "table" else f"{_json(row)}\n"
    if path is None:
        sys.stderr.write(text)
        return
    try:
        path.write_text(text)
    except OSError as error:
        raise UnavailableError(f"{path}: {error.strerror}") from error


def _json(row: dict[str, Any]) -> str:
    return msgspec.json.format(msgspec.json.encode(row), indent=2).decode()
