"""The packages with their own Python: installed, started, upgraded and removed as on a site.

``CCPIPE_PACKAGES`` names a directory with releases 1 and 2 that ``make packages`` built;
``CCPIPE_CHROOTS`` one in which the Debian systems are kept.
"""

import json
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ccpipe import __version__
from scripts.packages import file_name
from tests.conftest import program
from tests.paths import ROOT
from tests.site.chroot import Chroot, debootstrap
from tests.site.shared import start_on_nodes

pytestmark = [pytest.mark.site, pytest.mark.timeout(3 * 3600)]
RELEASES = ("bullseye", "bookworm", "trixie")

WORKS = """
set -e
export CCPIPE_CONFIG=/etc/ccpipe/ccpipe.toml HOME=/tmp
cd /tmp
/opt/ccpipe/bin/nats-server --jetstream --store_dir /tmp/jetstream --addr 127.0.0.1 2>/dev/null &
ccpipe bridge /etc/ccpipe/bridges/file.toml &
bridge=$!
for attempt in $(seq 60); do
    ccpipe publish --once || true
    grep -qs cpu_load messages.lp && break
    sleep 1
done
kill $bridge
wait $bridge
cat messages.lp
"""
"""A broker, the publisher and a bridge, which stores what the publisher measures."""


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with releases 1 and 2 of the packages."""
    if found := os.environ.get("CCPIPE_PACKAGES"):
        return Path(found)
    out = tmp_path_factory.mktemp("packages")
    options = ["--out", str(out), "--release", "1", "--release", "2"]
    command = [sys.executable, "-m", "scripts.packages", *options]
    subprocess.run(command, cwd=ROOT, check=True, timeout=2 * 3600)
    return out


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory with a minimal system of each Debian release."""
    found = os.environ.get("CCPIPE_CHROOTS")
    return Path(found) if found else tmp_path_factory.mktemp("chroots")


@pytest.fixture
def system(cache: Path, packages: Path, tmp_path: Path) -> Iterator[Callable[[str], Chroot]]:
    """Give a test a system of a Debian release without Python; it is removed afterwards."""
    yield lambda release: Chroot(debootstrap(release, cache), tmp_path, packages)
    shutil.rmtree(tmp_path)


def files(form: str, release: str, *names: str, directory: str = "/packages") -> str:
    """Return the paths of packages, by default of all, inside a chroot."""
    chosen = names or ("node", "server")
    return " ".join(f"{directory}/{file_name(name, __version__, release, form)}" for name in chosen)


@pytest.mark.parametrize("release", RELEASES)
def test_debian_packages_are_installed_upgraded_and_removed(
    release: str, system: Callable[[str], Chroot]
) -> None:
    """On each Debian: the kernel is compiled, lines arrive, an edited file stays, purge clears."""
    debian = system(release)
    assert not debian.exists("/usr/bin/python3")
    debian.run(f"dpkg --install {files('deb', '1')}")
    assert json.loads(debian.run("ccpipe version -o json"))["kernel"] == "compiled"
    assert "cpu_load,cluster=local" in debian.run(WORKS)
    debian.run("sed -i 's/^cluster = .*/cluster = \"fritz\"/' /etc/ccpipe/ccpipe.toml")
    debian.run("echo '# ours' >> /etc/ccpipe/bridges/parquet.toml")
    debian.run(f"dpkg --install {files('deb', '2')}")
    assert debian.run("dpkg-query -Wf '${Version}' ccpipe-server") == f"{__version__}-2"
    assert "cpu_load,cluster=fritz" in debian.run(WORKS)
    assert "# ours" in debian.run("cat /etc/ccpipe/bridges/parquet.toml")
    debian.run("dpkg --remove ccpipe-server ccpipe-node")
    assert not debian.exists("/opt/ccpipe")
    assert "fritz" in debian.run("cat /etc/ccpipe/ccpipe.toml")
    debian.run("dpkg --purge ccpipe-server ccpipe-node")
    assert not debian.exists("/etc/ccpipe")


def test_node_alone_publishes_without_server_package(
    system: Callable[[str], Chroot],
) -> None:
    """A node needs one package, which has its user, its manual and its completion."""
    chroot = system("bookworm")
    chroot.run(f"dpkg --install {files('deb', '1', 'node')}")
    assert "cpu_load" in chroot.run("ccpipe publish --once --dry-run")
    assert chroot.run("ccpipe step true; id -un ccpipe").endswith("ccpipe\n")
    assert "_cyclopts_ccpipe" in chroot.run("cat /usr/share/zsh/vendor-completions/_ccpipe")
    # minbase leaves out manual pages.
    listing = chroot.run("dpkg --listfiles ccpipe-node")
    assert "/usr/share/man/man1/ccpipe.1.gz" in listing


def test_units_of_packages_are_accepted_by_systemd(
    system: Callable[[str], Chroot], tmp_path: Path
) -> None:
    """Their command exists where the package is installed, and their settings are known."""
    chroot = system("bookworm")
    chroot.run(f"dpkg --install {files('deb', '1')}")
    listed = chroot.run("dpkg --listfiles ccpipe-node ccpipe-server").split()
    units = [path for path in listed if path.startswith("/usr/lib/systemd/system/ccpipe-")]
    assert len(units) == 4
    for unit in units:
        text = chroot.run(f"cat {unit}")
        assert "ExecStart=/usr/bin/ccpipe " in text
        copy = tmp_path / Path(unit).name
        copy.write_text(text.replace("/usr/bin/ccpipe", "/bin/true"))
        verify = [str(program("systemd-analyze", "systemd")), "verify", "--man=no", str(copy)]
        done = subprocess.run(verify, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")


def test_rpm_packages_are_installed_upgraded_and_removed(
    system: Callable[[str], Chroot],
) -> None:
    """As above, by rpm: an edited file is kept, and no file of ours remains in /opt."""
    program("rpm", "rpm")
    chroot = system("bullseye")
    rpm = 'rpm --root "$ROOT" --nodeps'
    first, second = (files("rpm", release, directory="$PACKAGES") for release in "12")
    chroot.outside(f"{rpm} --install {first}")
    assert json.loads(chroot.run("ccpipe version -o json"))["kernel"] == "compiled"
    chroot.run("sed -i 's/^cluster = .*/cluster = \"fritz\"/' /etc/ccpipe/ccpipe.toml")
    chroot.outside(f"{rpm} --upgrade {second}")
    assert "cpu_load,cluster=fritz" in chroot.run(WORKS)
    chroot.outside(f"{rpm} --erase ccpipe-server ccpipe-node")
    assert not chroot.exists("/opt/ccpipe/bin/python3")
    assert "fritz" in chroot.run("cat /etc/ccpipe/ccpipe.toml*")


def test_rpm_and_deb_have_same_files(packages: Path) -> None:
    """But for the directory of zsh's functions, which the distributions have elsewhere."""
    for name in ("node", "server"):
        rpm = packages / file_name(name, __version__, "1", "rpm")
        query = [str(program("rpm", "rpm")), "--query", "--list", "--package", str(rpm)]
        of_rpm = set(subprocess.check_output(query, text=True).split("\n"))
        deb = packages / file_name(name, __version__, "1", "deb")
        listing = subprocess.check_output(["dpkg-deb", "--fsys-tarfile", deb])
        (packages / "listing.tar").write_bytes(listing)
        with tarfile.open(packages / "listing.tar") as archive:
            of_deb = {
                "/" + member.name.removeprefix("./") for member in archive if not member.isdir()
            }
        (packages / "listing.tar").unlink()
        differing = {Path(path).name for path in of_deb - of_rpm}
        assert differing <= {"_ccpipe"}, differing


def test_archive_on_shared_file_system_serves_100_nodes(packages: Path, tmp_path: Path) -> None:
    """All start at once, each under its name, from a directory that they cannot write to.

    On two cores they take turns, so that what one takes of a core is measured, not the time.
    """
    with tarfile.open(packages / f"ccpipe-node-{__version__}-x86_64.tar.gz") as archive:
        archive.extractall(tmp_path, filter="tar")
    installation = tmp_path / f"ccpipe-node-{__version__}"
    modules = list(installation.rglob("*.py"))
    assert modules
    missing = [path for path in modules if not compiled(path)]
    assert not missing
    command = installation / "bin" / "ccpipe"
    for arguments in (("version",), ("publish", "--once", "--dry-run")):
        starts = start_on_nodes(installation, 100, (command, *arguments), tmp_path)
        print(arguments, starts.cpu_seconds, starts.elapsed_seconds)
    for name, output in starts.outputs.items():
        assert f"cpu_load,cluster=local,hostname={name},type=node value=" in output


def compiled(module: Path) -> bool:
    return any((module.parent / "__pycache__").glob(f"{module.stem}.cpython-*.pyc"))
