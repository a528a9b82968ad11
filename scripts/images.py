"""Build the images of bridges/Dockerfile: ``scripts/images.py [--engine docker|podman|buildah]``.

``ccpipe`` has every bridge and the dashboard, ``ccpipe-node`` what a node needs. Each is tagged
with the version and ``latest``, and labelled with version, commit and its time (OCI annotations).
Arguments after ``--`` go to the engine's ``build``, such as ``--pull-never`` or ``--build-arg``.
"""

import argparse
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from ccpipe import __version__  # noqa: E402 - the script needs no installed ccpipe

ENGINES = ("docker", "podman", "buildah")
EXTRAS = {"ccpipe-node": ["--build-arg=EXTRAS=nkeys,nvidia"], "ccpipe": []}
"""What each image has, where it is not the default of the Dockerfile."""
REVISION = ("--always", "--dirty", "--abbrev=40", "--exclude=*")


def main() -> None:
    """Build the images and print their names; exits with the status of an engine that fails."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--engine", choices=ENGINES, help="default: the first that runs")
    parser.add_argument("--image", action="append", choices=EXTRAS, help="default: both")
    parser.add_argument("--registry", default="", help="prefix of names: registry.example.org/hpc")
    parser.add_argument("build", nargs="*", metavar="-- ARGUMENT", help="for the engine's build")
    given = parser.parse_args()
    engine = given.engine or next(filter(is_running, ENGINES), None)
    if engine is None:
        sys.exit(f"none of {', '.join(ENGINES)} is installed and running")
    for image in given.image or EXTRAS:
        name = f"{given.registry.rstrip('/')}/{image}".lstrip("/")
        tags = [f"{name}:{__version__}", f"{name}:latest"]
        command = [engine, "build", *arguments(tags), *EXTRAS[image], *given.build, str(ROOT)]
        if status := run(command):
            sys.exit(status)
        print(*tags)


def arguments(tags: list[str]) -> list[str]:
    """Return the options that name and label an image."""
    labels = {
        "org.opencontainers.image.created": git("log", "-1", "--format=%cI"),
        "org.opencontainers.image.revision": git("describe", *REVISION),
        "org.opencontainers.image.version": __version__,
    }
    return [
        f"--file={ROOT}/bridges/Dockerfile",
        *(f"--tag={tag}" for tag in tags),
        *(f"--label={key}={value}" for key, value in labels.items() if value),
    ]


def is_running(engine: str) -> bool:
    """Return whether an engine is installed and, if it has a daemon, reached."""
    return bool(shutil.which(engine)) and not run([engine, "info"], quiet=True)


def git(*words: str) -> str:
    """Return what git prints, nothing without git or outside of a clone."""
    if shutil.which("git") is None:
        return ""
    done = subprocess.run(  # noqa: S603
        ["git", "-C", ROOT, *words],  # noqa: S607
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    return done.stdout.strip()


def run(command: list[str], *, quiet: bool = False) -> int:
    """Run a command with its output on stderr and return its status."""
    output = subprocess.DEVNULL if quiet else sys.stderr
    done = subprocess.run(command, stdout=output, stderr=output, check=False)  # noqa: S603
    return done.returncode


if __name__ == "__main__":
    main()
