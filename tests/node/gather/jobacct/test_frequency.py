"""Frequencies of hardware threads."""

from pathlib import Path

from ccpipe.node.gather.jobacct.frequency import Frequencies


def test_cpufreq_comes_first_and_cpuinfo_is_turned_into_kilohertz(tmp_path: Path) -> None:
    """Of what the kernel has; a refresh reads again."""
    folder = tmp_path / "sys/devices/system/cpu/cpu1/cpufreq"
    folder.mkdir(parents=True)
    (folder / "scaling_cur_freq").write_text("1800000\n")
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/cpuinfo").write_text(
        "processor\t: 0\ncpu MHz\t\t: 2596.120\n\nprocessor\t: 3\ncpu MHz\t\t: 3000\n"
    )
    found = Frequencies(str(tmp_path))
    assert found.of(1) == 1_800_000
    assert found.of(0) == 2_596_120
    assert found.of(3) == 3_000_000
    assert found.of(7) == 0
    (tmp_path / "proc/cpuinfo").write_text("processor : 0\ncpu MHz : 1000.5\n")
    assert found.of(0) == 2_596_120
    found.refresh()
    assert found.of(0) == 1_000_500


def test_a_machine_that_reports_none_has_0(tmp_path: Path) -> None:
    """Such as one of ARM without cpufreq."""
    assert Frequencies(str(tmp_path)).of(0) == 0
