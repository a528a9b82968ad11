"""Real profile files, and helpers of tests."""

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from ccpipe.formats.slurm_profile.hdf5 import Group, Hdf5File, Records
from ccpipe.formats.slurm_profile.reader import Profile, open_profile
from ccpipe.formats.slurm_profile.series import TasksSeries
from ccpipe.formats.slurm_profile.table import NodeStep, RowsInMemory, Table
from ccpipe.formats.slurm_profile.writer import NodeStepWriter

DATA = Path(__file__).parent.parent.parent / "data" / "slurm_profile"
NODE_STEPS = sorted((DATA / "node-step").glob("*/*.h5"))
MERGED = sorted((DATA / "merged").glob("*.h5"))
REAL = [*NODE_STEPS, *MERGED, *sorted((DATA / "requeue-before").glob("*.h5"))]
START = 1_795_170_814
"""The start of the steps of the samples below."""


def named(paths: list[Path]) -> list[str]:
    return [str(path.relative_to(DATA)) for path in paths]


Row = tuple[int | float, ...]


def rows(table: Table, fields: Sequence[str] = ()) -> list[Row]:
    return as_rows(table.read()[list(fields or table.fields)])


def as_rows(records: Records) -> list[Row]:
    found: Any = records.tolist()
    return list(found)


def contents(profile: Profile) -> dict[str, tuple[tuple[str, ...], bytes]]:
    return {
        f"{table.node_step.run} {table.path}": (table.fields, table.read().tobytes())
        for table in profile.tables
    }


def read_contents(path: Path) -> dict[str, tuple[tuple[str, ...], bytes]]:
    with open_profile(path) as profile:
        assert profile.damage == []
        return contents(profile)


def table_of(
    series: str, columns: Mapping[str, Sequence[float]], *, node: str = "c1", step: str = "0"
) -> Table:
    """Return a table in memory; its first sample is at START and they are a second apart."""
    task = "0" if series == TasksSeries.name else None
    size = len(next(iter(columns.values())))
    defaults: dict[str, Any] = {"ElapsedTime": range(size), "EpochTime": range(START, START + size)}
    columns = {**defaults, **columns}
    types = [
        (name, "<f8" if any(isinstance(value, float) for value in values) else "<u8")
        for name, values in columns.items()
    ]
    made: Records = np.zeros(size, types)
    for name, values in columns.items():
        made[name] = list(values)
    return Table(NodeStep(step=step, node=node), series, RowsInMemory(made), task=task)


def write_node_step(
    path: Path, *, rows: int = 30, tasks: int = 2, start: int = START, **attributes: Any
) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    node = path.name.removesuffix(".h5").split("_", 2)[2]
    node_step = NodeStep(
        step="", node=node, **{"node_index": 0, "tasks": tasks, "cpus_per_task": 1, **attributes}
    )
    with NodeStepWriter(path, node_step, start=start) as writer:
        for second in range(rows):
            writer.append("Energy", {"Power": 100 + second}, start + second)
            for task in range(tasks):
                values = {field.name: float(second) for field in TasksSeries.fields}
                values |= {"RSS": 1000 * task + second, "CPUTime": second / 7, "Pages": 0}
                writer.append("Tasks", values, start + second, task)
            if second % 7 == 0:
                writer.flush()
    return path


def dump(group: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in group.attrs.items():
        plain = value[0] if isinstance(value, np.ndarray) else value
        found[f"@{name}"] = plain.decode() if isinstance(plain, bytes) else int(plain)
    for name, item in group.items():
        found[name] = dump(item) if isinstance(item, h5py.Group) else item[:].tobytes()
    return found


def read_file(path: Path) -> dict[str, Any]:
    def read(group: Group) -> dict[str, Any]:
        found: dict[str, Any] = {f"@{name}": value for name, value in group.attributes.items()}
        for name in group:
            item = group.open(name)
            found[name] = read(item) if isinstance(item, Group) else item.read().tobytes()
        return found

    file = Hdf5File(path)
    try:
        return read(file.root())
    finally:
        file.close()


def read_bytes(data: bytes) -> dict[str, Any]:
    with tempfile.NamedTemporaryFile(suffix=".h5") as file:
        file.write(data)
        file.flush()
        return read_file(Path(file.name))
