"""Build what a release consists of: ``scripts/wheels.py --out dist [--python PYTHON]…``.

One wheel for each Python, with the compiled kernels, for every Linux with glibc 2.28 or later
(RHEL 8); the source distribution; a list of all libraries (SBOM, CycloneDX); checksums. They are
built from the last commit, in an environment of their own, and each is then installed into an
empty one and tried. The same commit gives the same files: ``--twice`` builds each wheel again and
compares.
"""

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FLOOR = "2.28"
PLATFORM = f"manylinux_{FLOOR.replace('.', '_')}_x86_64"
VERSIONS = ("3.11", "3.12", "3.13", "3.14")
TRY = """
from ccpipe import Message, decode
from ccpipe.formats.lineprotocol import encode, to_lines
line = encode(to_lines([Message("cpu_load", {"hostname": "n1"}, 1.5, 10**18)]))
assert [m.value for m in decode(line)] == [1.5], line
"""


def main() -> None:
    """Build everything; exits with the status of what fails."""
    arguments = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    arguments.add_argument("--out", type=Path, default=ROOT / "dist")
    arguments.add_argument("--python", action="append", help="an interpreter; default: all found")
    arguments.add_argument("--twice", action="store_true", help="compare with a second build")
    given = arguments.parse_args()
    pythons = given.python or list(found())
    if not pythons:
        sys.exit(f"none of {', '.join(f'python{each}' for each in VERSIONS)} was found")
    out: Path = given.out.absolute()
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="ccpipe-wheels-") as name:
        directory = Path(name)
        source = committed(directory / "source")
        built = []
        for number, python in enumerate(pythons):
            release = Release(python, directory / str(number), source)
            if not number:
                built.append(release.sdist(out))
            wheel = release.wheel(out)
            if given.twice and digest(release.wheel(directory / "again")) != digest(wheel):
                sys.exit(f"{wheel.name}: the second build differs")
            release.try_wheel(wheel)
            built.append(wheel)
        built.append(release.sbom(wheel, out))
    sums = "".join(f"{digest(path)}  {path.name}\n" for path in sorted(built))
    (out / "SHA256SUMS").write_text(sums)
    print(sums, end="")


def found() -> Iterator[str]:
    """Yield the interpreters on the ``PATH``, else those of pyenv."""
    pyenv = Path.home() / ".pyenv" / "versions"
    for version in VERSIONS:
        own = sorted(map(str, pyenv.glob(f"{version}.*/bin/python")))
        path = own[-1] if own else shutil.which(f"python{version}")
        if path:
            yield path


def committed(directory: Path) -> Path:
    """Return a directory with the last commit: nothing that lies about gets into a release."""
    directory.mkdir()
    archive = directory.with_suffix(".tar")
    run("git", "-C", ROOT, "archive", "--output", archive, "HEAD")
    shutil.unpack_archive(archive, directory, filter="data")
    return directory


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


class Release:
    """The files built with one interpreter."""

    def __init__(self, python: str, directory: Path, source: Path) -> None:
        """Make the environment with the tools, which the extra ``release`` names."""
        self.python, self.directory, self.source = python, directory, source
        self.tools = self.environment("tools")
        requirements = release_tools(source)
        say(f"{version_of(python)}: installing {', '.join(requirements)}")
        run(self.tools, "-m", "pip", "install", "--quiet", *requirements)
        self.epoch = run("git", "-C", ROOT, "log", "-1", "--format=%ct").strip()

    def environment(self, name: str) -> Path:
        """Return the interpreter of a new virtual environment."""
        path = self.directory / name
        run(self.python, "-m", "venv", path)
        return path / "bin" / "python"

    def sdist(self, out: Path) -> Path:
        """Build the source distribution, and try it where nothing can be compiled."""
        before = set(out.glob("*.tar.gz"))
        self.build("--sdist", out)
        [path] = set(out.glob("*.tar.gz")) - before or before
        python = self.environment("without-compiler")
        say(f"{path.name}: installing it without a compiler")
        no_compiler = {"CC": "false", "CXX": "false"}
        run(python, "-m", "pip", "install", "--quiet", path, environ=no_compiler)
        self.check(python, kernel="python")
        return path

    def wheel(self, out: Path) -> Path:
        """Build one wheel, and check that it needs no later glibc."""
        raw = self.directory / "raw"
        shutil.rmtree(raw, ignore_errors=True)
        shutil.rmtree(self.source / "build", ignore_errors=True)
        self.build("--wheel", raw)
        [path] = raw.glob("*.whl")
        repaired = self.directory / "repaired"
        shutil.rmtree(repaired, ignore_errors=True)
        run(
            self.tools, "-m", "auditwheel", "repair", "--only-plat", "--plat", PLATFORM,
            "--wheel-dir", repaired, path, environ={"SOURCE_DATE_EPOCH": self.epoch},
        )  # fmt: skip
        [path] = repaired.glob("*.whl")
        out.mkdir(exist_ok=True)
        return Path(shutil.move(path, out / path.name))

    def build(self, what: str, out: Path) -> None:
        """Run the build with a compiler that links for the oldest glibc.

        Debian's Python would give its own compiler's options to the linker.
        """
        say(f"{version_of(self.python)}: building {what.removeprefix('--')}")
        compiler = f"{self.tools} -m ziglang {{}} -target x86_64-linux-gnu.{FLOOR}"
        run(
            self.tools, "-m", "build", what, "--no-isolation", "--outdir", out, self.source,
            environ={
                "CC": compiler.format("cc"),
                "CXX": compiler.format("c++"),
                "CPPFLAGS": f"-I{self.headers()}",
                "LDSHARED": f"{compiler.format('cc')} -shared",
                "LDCXXSHARED": f"{compiler.format('c++')} -shared",
                "CCPIPE_REQUIRE_KERNELS": "1",
                "CCPIPE_KERNEL_FLAGS": "-g0",
                "SOURCE_DATE_EPOCH": self.epoch,
            },
        )  # fmt: skip

    def headers(self) -> Path:
        """Return a directory for Debian's pyconfig.h, which only Debian's own compilers find."""
        code = "import sysconfig as s; print(s.get_config_var('MULTIARCH'), s.get_path('include'))"
        architecture, include = run(self.python, "-c", code).split()
        found = Path(include).parent / architecture / Path(include).name
        link = self.directory / "headers" / architecture / found.name
        link.parent.mkdir(parents=True, exist_ok=True)
        if found.is_dir() and not link.is_symlink():
            link.symlink_to(found)
        return self.directory / "headers"

    def try_wheel(self, path: Path) -> None:
        """Install a wheel into an empty environment, and decode with its kernel."""
        python = self.environment("empty")
        say(f"{path.name}: installing it into an empty environment")
        run(python, "-m", "pip", "install", "--quiet", path)
        self.check(python, kernel="compiled")

    def check(self, python: Path, *, kernel: str) -> None:
        """Exit unless the installed ccpipe works with this kernel."""
        shown = json.loads(run(python, "-m", "ccpipe", "version", "-o", "json"))
        if shown["kernel"] != kernel:
            sys.exit(f"the kernel is {shown['kernel']!r}, expected {kernel!r}")
        run(python, "-c", TRY)

    def sbom(self, wheel: Path, out: Path) -> Path:
        """Write the list of all libraries that the wheel can use, as CycloneDX."""
        python = self.environment("all")
        say("listing the libraries of all extras")
        name, release, *_ = wheel.name.split("-")
        # By its name: the place of a file would be listed with it.
        own = f"{name}[all]=={release}"
        run(python, "-m", "pip", "install", "--quiet", "--find-links", wheel.parent, own)
        path = out / f"{name}-{release}.cdx.json"
        listing = [
            "cyclonedx_py",
            "environment",
            "--output-reproducible",
            "--output-file",
            path,
            python,
        ]
        run(self.tools, "-m", *listing)
        return path


def release_tools(source: Path) -> list[str]:
    project = tomllib.loads((source / "pyproject.toml").read_text())["project"]
    return list(project["optional-dependencies"]["release"])


def version_of(python: str) -> str:
    return run(python, "--version").strip()


def run(
    program: str | Path,
    *arguments: object,
    environ: Mapping[str, str] | None = None,
    directory: Path | None = None,
) -> str:
    """Run a program and return its output; show all of it if it fails.

    Without a directory it runs in an empty one: the working copy could be imported from its own.
    Programs next to it are found.
    """
    kept = {**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    if Path(program).is_absolute():
        kept["PATH"] = os.pathsep.join([str(Path(program).parent), kept["PATH"]])
    words = [str(program), *map(str, arguments)]
    with tempfile.TemporaryDirectory() as empty:
        done = subprocess.run(  # noqa: S603 - the programs of a release
            words, cwd=directory or empty, env={**kept, **(environ or {})}, check=False,
            capture_output=True, text=True, errors="replace",
        )  # fmt: skip
    if done.returncode:
        print(done.stdout, done.stderr, sep="\n", file=sys.stderr)
        sys.exit(f"{' '.join(words)}: exit status {done.returncode}")
    return done.stdout


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
