"""The script's installation of a real Slurm; the cluster itself runs in ``make slurm``."""

from pathlib import Path

import pytest

from scripts import slurm_cluster

LOCKED = "E: Could not get lock /var/lib/apt/lists/lock. It is held by process 7 (apt-get)"
APT = """\
#!/bin/sh
echo "$@" >> {calls}
[ "$(wc -l < {calls})" -ge {succeeds} ] && exit 0
echo "{error}" >&2
exit 100
"""


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Replace apt-get, whose lock a test must not hold; return the file with its calls."""
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    return tmp_path / "calls"


def install_apt(calls: Path, *, succeeds: int, error: str) -> None:
    program = calls.parent / "apt-get"
    program.write_text(APT.format(calls=calls, succeeds=succeeds, error=error))
    program.chmod(0o755)


def test_apt_get_waits_while_lock_is_held(calls: Path) -> None:
    """Another program may keep the lock of the lists or of dpkg for minutes."""
    install_apt(calls, succeeds=3, error=LOCKED)
    slurm_cluster.apt_get("update", "-qq")
    assert calls.read_text().splitlines() == ["update -qq"] * 3


@pytest.mark.parametrize(("error", "seconds"), [(LOCKED, 0), ("E: Unable to locate package x", 9)])
def test_apt_get_ends_with_error(
    calls: Path, monkeypatch: pytest.MonkeyPatch, error: str, seconds: int
) -> None:
    """Without a traceback, if a lock is held for too long or on another error."""
    monkeypatch.setattr(slurm_cluster, "LOCK_SECONDS", seconds)
    install_apt(calls, succeeds=100, error=error)
    with pytest.raises(SystemExit, match=error.replace("(", r"\(").replace(")", r"\)")):
        slurm_cluster.apt_get("install", "x")
