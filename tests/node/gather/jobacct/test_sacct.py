"""Records in sacct's columns, beside what the real sacct printed."""

import csv
import re
from pathlib import Path

import pytest

from ccpipe.formats.nodelist import expand
from ccpipe.node.gather.jobacct import JobacctInfo, TaskId, Usage, create, to_sacct

DATA = Path(__file__).parents[3] / "data" / "gather" / "sacct_steps.txt"
ROWS = list(csv.DictReader(DATA.read_text().splitlines(), delimiter="|"))
SIZES = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30}


def _value(text: str) -> int:
    if ":" in text:
        hours, minutes, seconds = map(int, text.split(":"))
        return (hours * 3600 + minutes * 60 + seconds) * 1000
    found = re.fullmatch(r"([\d.]+)([KMG]?)", text)
    assert found, text
    return round(float(found[1]) * SIZES[found[2]])


def _list(text: str) -> dict[str, str]:
    return dict(pair.split("=") for pair in text.split(",") if pair)


def _record(row: dict[str, str], nodes: list[str]) -> JobacctInfo:
    info = create()
    info.tasks = int(row["NTasks"])
    for direction, usages in (("In", info.usage_in), ("Out", info.usage_out)):
        columns = {
            name: _list(row[f"TRESUsage{direction}{name}"])
            for name in ("Max", "MaxNode", "MaxTask", "Min", "MinNode", "MinTask", "Tot")
        }
        for resource, total in columns["Tot"].items():
            cells = {name: column.get(resource, "") for name, column in columns.items()}
            if not cells["Max"]:
                continue
            usages[resource] = Usage(
                max=_value(cells["Max"]),
                max_id=_id(cells["MaxTask"], cells["MaxNode"], nodes),
                min=_value(cells["Min"]),
                min_id=_id(cells["MinTask"], cells["MinNode"], nodes),
                total=_value(total),
            )
    return info


def _id(task: str, node: str, nodes: list[str]) -> TaskId:
    return TaskId(int(task) if task else None, nodes.index(node) if node else None)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: str(row["JobID"]))
def test_columns_are_those_of_the_real_sacct(row: dict[str, str]) -> None:
    """To the last digit, but for what the real one counts once per task instead of per node."""
    nodes = list(expand(row["NodeList"]))
    found = to_sacct(_record(row, nodes), nodes)
    wrong = {"AveCPUFreq", "ConsumedEnergy", "ConsumedEnergyRaw"}
    compared = [name for name in row if name in found and name not in wrong]
    assert len(compared) > 35
    for name in compared:
        if name == "AveCPU":
            continue  # of milliseconds, which the lists do not show
        ours, theirs = found[name], row[name]
        if name.startswith("TRESUsageInAve"):
            ours, theirs = (re.sub(r"cpu=[\d:]+", "", text) for text in (ours, theirs))
        assert ours == theirs, name


def test_times_are_written_as_sacct_writes_them() -> None:
    info = create(TaskId(0, 0))
    info.user, info.system = 14_493_999, 942_000
    info.update("cpu", (86400 + 3661) * 1000 + 999)
    row = to_sacct(info, ["c1"])
    assert row["UserCPU"] == "00:14.493"
    assert row["TotalCPU"] == "00:15.435"
    assert row["AveCPU"] == row["MinCPU"] == "1-01:01:01"
    info.user = 3_600_000_000
    assert to_sacct(info)["UserCPU"] == "01:00:00"


def test_frequency_and_energy_have_decimal_units() -> None:
    info = create(TaskId(0, 0))
    info.cpu_time_weighed, info.weighted_frequency = 10, 10 * 2_596_120
    info.update("energy", 10767)
    row = to_sacct(info, ["c1"])
    assert (row["AveCPUFreq"], row["ConsumedEnergy"]) == ("2.60G", "10.77K")
    assert row["ConsumedEnergyRaw"] == "10767"
    raw = to_sacct(info, ["c1"], convert=False)
    assert (raw["AveCPUFreq"], raw["ConsumedEnergy"]) == ("2596120", "10767")


def test_what_is_unset_is_empty() -> None:
    """A step shorter than one poll has no 0 if nothing was measured."""
    row = to_sacct(create(TaskId(0, 0)), ["c1"])
    assert {row[name] for name in ("MaxRSS", "MaxRSSNode", "MaxRSSTask", "AveCPU")} == {""}
    assert row["TRESUsageInMax"] == ""
