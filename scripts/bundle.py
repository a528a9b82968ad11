"""Pack an installation without internet: ``scripts/bundle.py [--wheels dist] [--extras all]``.

The file ``ccpipe-VERSION-offline-x86_64.tar`` has the wheels of ccpipe that ``make wheels`` built,
those of all libraries of some extras for the same versions of Python and glibc 2.28 or later, and
``install.sh``. Libraries that are only published as source are built here.
"""

import argparse
import re
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OLDEST = ("manylinux2014_x86_64", "manylinux2010_x86_64", "manylinux1_x86_64")
PLATFORMS = (*(f"manylinux_2_{minor}_x86_64" for minor in range(28, 4, -1)), *OLDEST)
"""Tags of wheels that run where glibc is 2.28; pip does not derive them from each other."""
SOURCE_ONLY = ("nkeys",)
"""Libraries without compiled code that are not published as wheels."""

INSTALL = """\
#!/bin/sh
# Install ccpipe without internet: ./install.sh [DIRECTORY] [PYTHON]
# DIRECTORY (default: /opt/ccpipe) may be on a file system that nodes share; nothing is written
# there afterwards. PYTHON is 3.11 or later; default: the latest found of those in this bundle.
set -eu
bundle=$(cd "$(dirname "$0")" && pwd)
target=${{1:-/opt/ccpipe}}
python=${{2:-}}
for version in {versions}; do
    [ -n "$python" ] || python=$(command -v "python$version" || true)
done
if [ -z "$python" ]; then
    echo "install.sh: no python{all_versions} was found: ./install.sh DIRECTORY PYTHON" >&2
    exit 69
fi
"$python" -m venv "$target"
"$target/bin/python" -m pip install --quiet --no-index --find-links "$bundle/wheels" \\
    --disable-pip-version-check --compile "ccpipe[{extras}]=={version}"
"$target/bin/ccpipe" version
"""


def main() -> None:
    """Write the bundle; exits with the status of what fails."""
    arguments = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    arguments.add_argument("--wheels", type=Path, default=ROOT / "dist")
    arguments.add_argument("--out", type=Path, default=ROOT / "dist")
    arguments.add_argument("--extras", default="all", help="separated by commas")
    given = arguments.parse_args()
    own = sorted(given.wheels.glob("ccpipe-*-manylinux*.whl"))
    if not own:
        sys.exit(f"no wheel of ccpipe in {given.wheels}: `make wheels` builds them")
    release = own[0].name.split("-")[1]
    tags = [re.findall(r"-cp3([0-9]+)-", path.name)[0] for path in own]
    versions = sorted((f"3.{minor}" for minor in tags), key=lambda v: int(v[2:]), reverse=True)
    path = given.out / f"ccpipe-{release}-offline-x86_64.tar"
    with tempfile.TemporaryDirectory(prefix="ccpipe-bundle-") as name:
        wheels = Path(name)
        for library in SOURCE_ONLY:
            pip("wheel", "--no-deps", "--wheel-dir", wheels, library)
        for version in versions:
            print(f"downloading the libraries for Python {version}", file=sys.stderr)
            download(wheels, given.wheels, version, f"ccpipe[{given.extras}]=={release}")
        script = INSTALL.format(
            versions=" ".join(versions), all_versions=", ".join(versions), extras=given.extras,
            version=release,
        )  # fmt: skip
        pack(path, f"ccpipe-{release}-offline", sorted(wheels.iterdir()), script)
    print(f"{path}: {path.stat().st_size / 2**20:.0f} MiB")


def download(target: Path, own: Path, version: str, requirement: str) -> None:
    """Download a requirement and what it needs, as wheels for one version of Python."""
    platforms = [word for platform in PLATFORMS for word in ("--platform", platform)]
    pip(
        "download", "--dest", target, "--find-links", own, "--find-links", target,
        "--only-binary", ":all:", "--implementation", "cp", "--python-version", version,
        *platforms, requirement,
    )  # fmt: skip


def pip(*arguments: object) -> None:
    words = [sys.executable, "-m", "pip", *map(str, arguments)]
    words += ["--quiet", "--disable-pip-version-check"]
    if subprocess.run(words, check=False).returncode:  # noqa: S603 - our own arguments
        sys.exit(f"{' '.join(words[:4])} … failed")


def pack(path: Path, top: str, wheels: Sequence[Path], script: str) -> None:
    """Write the archive; the wheels are compressed already."""
    with tempfile.TemporaryDirectory() as name, tarfile.open(path, "w") as archive:
        install = Path(name, "install.sh")
        install.write_text(script)
        install.chmod(0o755)
        archive.add(install, f"{top}/install.sh", filter=plain)
        for wheel in wheels:
            archive.add(wheel, f"{top}/wheels/{wheel.name}", filter=plain)


def plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Return a member that does not tell who packed it, or when."""
    member.uid = member.gid = member.mtime = 0
    member.uname = member.gname = "root"
    return member


if __name__ == "__main__":
    main()
