"""How much memory a process may use."""

from pathlib import Path

import pytest

from ccpipe.process.memory_limit import memory_limit


def groups(tmp_path: Path, text: str, files: dict[str, str]) -> int:
    own = tmp_path / "own"
    own.write_text(text)
    for name, limit in files.items():
        path = tmp_path / "cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(limit)
    return memory_limit(tmp_path / "cgroup", own)


@pytest.mark.parametrize(
    ("text", "files"),
    [
        ("0::/a.slice/b.service\n", {"a.slice/b.service/memory.max": "65536\n"}),
        (
            "0::/a.slice/b.service\n",
            {"a.slice/b.service/memory.max": "max\n", "a.slice/memory.max": "65536\n"},
        ),
        ("0::/\n", {"memory.max": "65536\n"}),
        ("4:cpu,memory:/job\n", {"memory/job/memory.limit_in_bytes": "65536\n"}),
    ],
    ids=["own", "parent", "namespace", "version 1"],
)
def test_memory_limit_is_least_of_all_groups(
    tmp_path: Path, text: str, files: dict[str, str]
) -> None:
    assert groups(tmp_path, text, files) == 65536


def test_memory_limit_defaults_to_memory_of_machine(tmp_path: Path) -> None:
    machine = groups(tmp_path, "0::/\n", {"memory.max": "max\n"})
    assert machine == memory_limit(tmp_path / "none", tmp_path / "none")
    total = int(Path("/proc/meminfo").read_text().split()[1]) * 1024
    assert 0.9 * total < machine < 1.1 * total
