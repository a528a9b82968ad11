"""A BeeGFS that is mounted, for the tests of its collectors.

A program that prints the format of ``beegfs-ctl`` stands in for it.
"""

from pathlib import Path

import pytest

from tests.paths import TEST_DATA

DATA = TEST_DATA / "beegfs"
SCRIPT = """#!/bin/sh
echo "$@" >> {asked}
case "$*" in
*--mount=/broken*) echo no luck >&2; exit 1;;
*--nodetype=meta*) cat {data}/meta.txt;;
*--nodetype=storage*) cat {data}/storage.txt;;
esac
"""


@pytest.fixture
def beegfs_root(tmp_path: Path) -> str:
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/mounts").write_text(
        "/dev/sda1 / ext4 rw 0 0\n"
        "beegfs_ondemand /beeond beegfs rw 0 0\n"
        "beegfs_nodev /broken beegfs rw 0 0\n"
    )
    return str(tmp_path)


@pytest.fixture
def command(tmp_path: Path) -> list[str]:
    program = tmp_path / "beegfs-ctl"
    program.write_text(SCRIPT.format(data=DATA, asked=tmp_path / "asked"))
    program.chmod(0o755)
    return [str(program)]
