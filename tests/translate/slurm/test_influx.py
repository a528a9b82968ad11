"""Lines of Slurm's profile plug-in ``influxdb`` become the metrics of ``ccpipe step``."""

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.config import Site
from ccpipe.formats.lineprotocol import decode, to_lines
from ccpipe.formats.slurm_metrics import METRICS, from_metric
from ccpipe.message import Message
from ccpipe.translate.slurm.influx import SlurmInflux
from tests.paths import TEST_DATA

BODIES = sorted((TEST_DATA / "slurm_influx").glob("*.lp"))
SITE = Site(cluster="fox", hostname="bridge")


def translated(payload: bytes) -> list[Message]:
    lines = decode(payload, precision="s", dialect="influx")
    assert not lines.rejected
    return list(SlurmInflux(site=SITE).feed(to_lines(list(lines))))


@pytest.mark.parametrize("path", BODIES, ids=lambda path: path.name)
def test_influx_converts_every_line_of_real_plugin(path: Path) -> None:
    text = path.read_text()
    wanted = Counter[tuple[str, ...]]()
    for line in text.splitlines():
        key, value, time = line.split(" ")
        field, *pairs = key.split(",")
        tags = dict(pair.split("=") for pair in pairs)
        step = tags["step"].replace("-5", "batch")
        task = tags["task"] if tags["task"].isdigit() else "None"
        number = float(value.removeprefix("value="))
        wanted[tags["job"], step, tags["host"], task, field, f"{number:.6g}", time] += 1
    found = Counter[tuple[str, ...]]()
    for message in translated(text.encode()):
        one = from_metric(message)
        assert not message.problems()
        found[one.job, one.step, one.node, str(one.task), one.field, f"{one.value:.6g}",
              str(one.time // 10**9)] += 1  # fmt: skip
    assert found == wanted


def test_influx_distinguishes_same_field_of_two_series() -> None:
    """``ReadMB`` is of a task or of the file system."""
    found = translated(
        b"ReadMB,job=1,step=0,task=0,host=n value=2 5\n"
        b"ReadMB,job=1,step=0,task=Filesystem,host=n value=3 5\n"
        b"ReadMB,job=1,step=0,host=n value=4 5\n"
    )
    assert [(one.name, one.value) for one in found] == [
        ("task_read_bytes", 2 * 2**20),
        ("lustre_read_bytes_diff", 3 * 2**20),
        ("lustre_read_bytes_diff", 4 * 2**20),
    ]


def test_influx_converts_grouped_samples() -> None:
    found = translated(
        b"task,cluster=elk,host=n,job=7,step=batch,task=2 CPUTime=1.5,RSS=10i 5\n"
        b"energy,host=n,job=7,step=0 Power=91i 5\n"
    )
    assert [(one.name, one.value, one.tags.get("cluster")) for one in found] == [
        ("task_cpu_time", 1.5, "elk"),
        ("task_mem_rss", 10240, "elk"),
        ("node_power", 91, "fox"),
    ]
    assert found[0].tags["stype-id"] == "7.batch.2"


def test_influx_omits_unset_numbers() -> None:
    """Slurm writes 2**64-2 for them."""
    assert not translated(b"RSS,job=1,step=0,task=0,host=n value=18446744073709551614 5\n")


TEXT = st.sampled_from(["", "0", "7", "task", "Tasks", "Energy", "x", *METRICS["Tasks"]])


@given(TEXT, st.dictionaries(st.sampled_from(["job", "step", "task", "host"]), TEXT),
       st.floats() | st.integers() | st.booleans() | st.text(max_size=3), TEXT)  # fmt: skip
def test_influx_passes_other_records(
    name: str, tags: dict[str, str], value: float | bool | str, field: str
) -> None:
    record = Message(name, tags, value, 5, field or "value")
    lines = to_lines([record])
    found = SlurmInflux(site=SITE).feed(lines)
    assert len(found) <= len(lines)
    if len(lines) and (not {"job", "step", "host"} <= tags.keys() or isinstance(value, bool | str)):
        assert found[0] == lines[0]
