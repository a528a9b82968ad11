"""Rules for what Slurm's plug-ins get wrong."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.formats.slurm_profile.corrections import CORRECTIONS, recognize
from ccpipe.formats.slurm_profile.reader import open_profile
from ccpipe.formats.slurm_profile.table import Rule, Table
from tests.formats.slurm_profile.samples import MERGED, table_of


def real(series: str) -> list[Table]:
    tables: list[Table] = []
    for path in MERGED:
        profile = open_profile(path)
        tables += [table for table in profile.tables if table.series == series and len(table) > 3]
    return tables


def test_network_correction_swaps_bytes_and_packets() -> None:
    """The plug-in wrote bytes as packets, and packets / 65536 as mebibytes."""
    table = table_of(
        "Network",
        {
            "PacketsIn": [3 * 2**20, 0],
            "PacketsOut": [2**19, 1],
            "InMB": [0.5, 0.0],
            "OutMB": [2.0, 0.0],
        },
    )
    found = table.with_rules(CORRECTIONS["network_swapped"].apply).read()
    assert found["InMB"].tolist() == [3.0, 0.0]
    assert found["PacketsIn"].tolist() == [32_768, 0]
    assert found["OutMB"].tolist() == [0.5, 2**-20]
    assert found["PacketsOut"].tolist() == [131_072, 0]


def test_network_correction_fixes_real_tables() -> None:
    """All are from the sysfs plug-in; once corrected, bytes per packet are plausible."""
    for table in real("Network"):
        assert recognize(table) == ["network_swapped"]
        corrected = table.with_rules(CORRECTIONS["network_swapped"].apply)
        rows = corrected.read()
        size = rows["InMB"].sum() * 2**20 / rows["PacketsIn"].sum()
        assert 20 < size < 65_536
        assert recognize(corrected) == []


def test_filesystem_correction_fixes_real_tables() -> None:
    """Slurm 22.05 wrote the node's counters after a first 0."""
    tables = real("Filesystem")
    for table in tables:
        assert recognize(table) == ["filesystem_node_counters"]
        rows = table.read()
        found = table.with_rules(CORRECTIONS["filesystem_node_counters"].apply).read()
        for name in ("Reads", "ReadMB", "Writes", "WriteMB"):
            assert found[name][:2].tolist() == [0, 0]
            assert found[name].sum() == pytest.approx(rows[name][-1] - rows[name][1])
    assert len(tables) > 5


def test_filesystem_correction_converts_step_counters() -> None:
    """As written by Slurm 25.11; the first row counts, and a decreased counter was reset."""
    table = table_of(
        "Filesystem",
        {name: [2, 5, 5, 9, 1] for name in ("Reads", "Writes")}
        | {name: [0.0, 1.5, 1.5, 4.0, 0.5] for name in ("ReadMB", "WriteMB")},
    )
    found = table.with_rules(CORRECTIONS["filesystem_step_counters"].apply).read()
    assert found["Reads"].tolist() == [2, 3, 0, 4, 1]
    assert found["WriteMB"].tolist() == [0.0, 1.5, 0.0, 2.5, 0.5]


def test_recognize_distinguishes_shapes_of_series() -> None:
    """Node counters jump once, step counters grow from 0, and changes go up and down."""
    zeros = {name: [0.0] * 5 for name in ("ReadMB", "WriteMB")} | {"Writes": [0] * 5}
    for reads, expected in (
        ([0, 900, 901, 905, 909], ["filesystem_node_counters"]),
        ([0, 1, 5, 9, 900], ["filesystem_step_counters"]),
        ([5, 3, 0, 9, 2], []),
        ([0, 0, 0, 0, 0], []),
    ):
        assert recognize(table_of("Filesystem", {"Reads": reads, **zeros})) == expected


def test_frequency_correction_converts_megahertz() -> None:
    table = table_of("Tasks", {"CPUFrequency": [0, 2596]})
    assert recognize(table) == ["frequency_megahertz"]
    found = table.with_rules(CORRECTIONS["frequency_megahertz"].apply)
    assert found.read()["CPUFrequency"].tolist() == [0, 2_596_000]
    assert recognize(found) == []


def test_corrections_leave_tables_without_fields_unchanged() -> None:
    for name, rule in CORRECTIONS.items():
        table = table_of(rule.series, {"Other": [1, 2, 3, 4, 5]})
        assert name not in recognize(table)
        assert table.with_rules(rule.apply).read().tobytes() == table.read().tobytes()


values = st.lists(st.integers(0, 2**50), min_size=1, max_size=30)


@given(
    values,
    st.integers(1, 31),
    st.sampled_from(["filesystem_node_counters", "filesystem_step_counters"]),
)
def test_corrections_do_not_depend_on_block_size(numbers: list[int], size: int, name: str) -> None:
    floats = [number / 8 for number in numbers]
    columns: dict[str, list[int] | list[float]] = {"Reads": numbers, "Writes": numbers}
    columns |= {"ReadMB": floats, "WriteMB": floats}
    rule: Rule = CORRECTIONS[name].apply
    table = table_of("Filesystem", columns).with_rules(rule)
    assert np.concatenate(list(table.blocks(size))).tobytes() == table.read().tobytes()
