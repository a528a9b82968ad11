"""Pack installations with their own Python: ``python -m scripts.packages [--python DIR]``.

``ccpipe-node`` is what a node needs, ``ccpipe-server`` adds bridges, dashboard and the libraries of
all stores; each as .deb and .rpm. The same trees are packed as archives that work in any directory,
such as one on a shared file system. Their wheel of ccpipe is one that ``make wheels`` built, their
Python a directory that can be moved, by default that of ``scripts/interpreter.py``. Nothing in them
needs a later glibc than 2.28 (RHEL 8).
"""

import argparse
import gzip
import os
import re
import shutil
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from scripts.bundle import SOURCE_ONLY, download, pip, plain
from scripts.interpreter import build_interpreter
from scripts.wheels import FLOOR, ROOT, digest, run, say

NFPM = "github.com/goreleaser/nfpm/v2/cmd/nfpm@v2.41.3"
EXTRAS = {
    "node": "nkeys,nvidia",
    "server": "dashboard,hdf5,http,kafka,mqtt,nats-server,nkeys,nvidia,parquet,postgres,"
    "prometheus,query,top,zstd",
}
UNITS = {
    "node": ("ccpipe-publish.service", "ccpipe-step.service"),
    "server": ("ccpipe-bridge@.service", "ccpipe-dashboard.service"),
}
SHELLS = ("bash", "fish", "zsh")
DESCRIPTIONS = ROOT / "bridges" / "packages"


def main() -> None:
    """Build everything; exits with the status of what fails."""
    arguments = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    arguments.add_argument("--out", type=Path, default=ROOT / "dist")
    arguments.add_argument("--wheels", type=Path, default=ROOT / "dist", help="of make wheels")
    arguments.add_argument("--python", type=Path, help="a directory with bin/python3")
    arguments.add_argument("--release", action="append", help="of the packages; default: 1")
    arguments.add_argument("--floor", default=FLOOR, help=f"glibc; default: {FLOOR}")
    given = arguments.parse_args()
    out: Path = given.out.absolute()
    out.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix="ccpipe-packages-") as name:
        trees = Trees(Path(name), given.python or own_python())
        trees.fill(given.wheels.absolute())
        check_floor(trees.directory, given.floor)
        built = list(trees.archives(out))
        for release in given.release or ["1"]:
            built += trees.packages(out, release, given.floor)
    for path in built:
        print(f"{digest(path)}  {path.name}  {path.stat().st_size / 2**20:.0f} MiB")


def own_python() -> Path:
    """Return the directory of the project's own build of Python, which is kept."""
    path = ROOT / "build" / "interpreter"
    if not path.exists():
        say("building Python, once: a quarter of an hour")
        build_interpreter(path)
    return path


class Trees:
    """The installed files of both packages, below ``node/`` and ``server/`` of a directory."""

    def __init__(self, directory: Path, python: Path) -> None:
        """Copy the interpreter; nothing is written to the original."""
        self.directory = directory
        self.node, self.server = (directory / name / "opt" / "ccpipe" for name in EXTRAS)
        shutil.copytree(python, self.node, symlinks=True)
        self.epoch = int(run("git", "-C", ROOT, "log", "-1", "--format=%ct"))

    def fill(self, own: Path) -> None:
        """Install everything; ``own`` has the wheel of ccpipe."""
        tag = run(self.node / "bin/python3", "-c", VERSION_OF).strip()
        found = sorted(own.glob(f"ccpipe-*-cp{tag.replace('.', '')}-manylinux*.whl"))
        if not found:
            sys.exit(f"no wheel of ccpipe for Python {tag} in {own}: `make wheels` builds them")
        self.version = found[-1].name.split("-")[1]
        wheels = self.directory / "wheels"
        wheels.mkdir()
        say(f"downloading the libraries for Python {tag}")
        for library in SOURCE_ONLY:
            pip("wheel", "--no-deps", "--wheel-dir", wheels, library)
        download(wheels, own, tag, f"ccpipe[{EXTRAS['server']}]=={self.version}")
        self.install(self.node, wheels, EXTRAS["node"])
        shutil.copy(DESCRIPTIONS / "ccpipe", self.node / "bin" / "ccpipe")
        shutil.copytree(self.node, self.server, symlinks=True)
        self.install(self.server, wheels, EXTRAS["server"])
        self.accompany()
        shutil.rmtree(wheels)
        for path in self.directory.rglob("*"):
            os.utime(path, (self.epoch, self.epoch), follow_symlinks=False)

    def install(self, tree: Path, wheels: Path, extras: str) -> None:
        """Install ccpipe and what some extras need, compiled for an installation never written to.

        The compiled files do not depend on the times of the sources, which packages change.
        """
        say(f"installing ccpipe[{extras}]")
        python = tree / "bin" / "python3"
        requirement = f"ccpipe[{extras}]=={self.version}"
        before = set(tree.glob("bin/*"))
        options = ("--no-index", "--no-compile", "--root-user-action=ignore")
        # This Python's pip, as the other one may have none.
        pip("--python", python, "install", *options, f"--find-links={wheels}", requirement)
        for script in set(tree.glob("bin/*")) - before:
            if script.read_bytes().startswith(b"#!"):
                script.unlink()  # it names this directory; ccpipe has a script of its own
        mode = ("--invalidation-mode", "unchecked-hash")
        library = next(tree.glob("lib/python3.*"))
        run(python, "-I", "-m", "compileall", "-q", *mode, "-s", tree, "-p", "/opt/ccpipe", library)

    def accompany(self) -> None:
        """Write what lies outside of /opt/ccpipe: configuration, units, manual, completion."""
        site = self.directory / "site"
        command = self.node / "bin" / "ccpipe"
        run(command, "init", site, "--units")
        for name, units in UNITS.items():
            target = self.directory / name
            for part in ("units", "share", "etc"):
                (target / part).mkdir()
            shutil.copy(ROOT / "LICENSE", target / "share")
            for unit in units:
                text = (site / "systemd" / unit).read_text()
                (target / "units" / unit).write_text(text.replace("/usr/local/bin/", "/usr/bin/"))
            for script in ("postinstall", "preremove", "postremove"):
                patterns = " ".join(units).replace("@.", "@*.")
                text = (DESCRIPTIONS / script).read_text().replace("@UNITS@", patterns)
                (target / script).write_text(text)
        share = self.directory / "node" / "share"
        for shell in SHELLS:
            (share / f"ccpipe.{shell}").write_text(run(command, "completion", shell))
        manual = (self.node / "share" / "man" / "man1" / "ccpipe.1").read_bytes()
        (share / "ccpipe.1.gz").write_bytes(gzip.compress(manual, mtime=0))
        shutil.move(site / "ccpipe.toml", self.directory / "node" / "etc")
        for name in ("nats.conf", "bridges"):
            shutil.move(site / name, self.directory / "server" / "etc")

    def archives(self, out: Path) -> Iterator[Path]:
        """Pack each tree as an archive; afterwards the server's has only what it adds."""
        for name, tree in (("node", self.node), ("server", self.server)):
            path = out / f"ccpipe-{name}-{self.version}-x86_64.tar.gz"
            say(f"packing {path.name}")
            pack(path, tree, f"ccpipe-{name}-{self.version}", self.epoch)
            yield path
        remove_common(self.server, self.node)

    def packages(self, out: Path, release: str, floor: str) -> Iterator[Path]:
        """Pack both trees as .deb and .rpm."""
        environ = {
            "VERSION": self.version, "RELEASE": release, "FLOOR": floor,
            "SOURCE_DATE_EPOCH": str(self.epoch),
        }  # fmt: skip
        for name in EXTRAS:
            for form in ("deb", "rpm"):
                say(f"packing ccpipe-{name} as .{form}")
                target = self.directory / f"{name}.{form}"
                words = ["package", "--config", DESCRIPTIONS / f"{name}.yaml", "--packager", form]
                words += ["--target", target]
                run(nfpm(), *words, environ=environ, directory=self.directory)
                path = out / file_name(name, self.version, release, form)
                shutil.move(target, path)
                yield path


VERSION_OF = "import sys; print('%d.%d' % sys.version_info[:2])"


def file_name(name: str, version: str, release: str, form: str) -> str:
    """Return the name that the packages of each kind conventionally have."""
    if form == "deb":
        return f"ccpipe-{name}_{version}-{release}_amd64.deb"
    return f"ccpipe-{name}-{version}-{release}.x86_64.rpm"


def nfpm() -> str:
    """Return the program that packs, which Go builds if it is not on the ``PATH``."""
    target = ROOT / "build" / "tools"
    found = shutil.which("nfpm") or shutil.which("nfpm", path=str(target))
    if found:
        return found
    say(f"building {NFPM}")
    run("go", "install", NFPM, environ={"GOBIN": str(target)})
    return str(target / "nfpm")


def remove_common(tree: Path, other: Path) -> None:
    """Remove from a tree what another one has too, and directories that are then empty."""
    for path in sorted(tree.rglob("*"), reverse=True):
        if path.is_dir() and not path.is_symlink():
            if not any(path.iterdir()):
                path.rmdir()
        elif (other / path.relative_to(tree)).is_symlink() or (
            other / path.relative_to(tree)
        ).exists():
            path.unlink()


def pack(path: Path, tree: Path, top: str, epoch: int) -> None:
    """Write an archive that does not tell who packed it, or when."""

    def entry(member: tarfile.TarInfo) -> tarfile.TarInfo:
        member = plain(member)
        member.mtime = epoch
        return member

    with (
        path.open("wb") as file,
        gzip.GzipFile("", "wb", 6, file, mtime=0) as compressed,
        tarfile.open(fileobj=compressed, mode="w") as archive,
    ):
        archive.add(tree, top, filter=entry)


def check_floor(directory: Path, floor: str) -> None:
    """Print the latest glibc that a file needs; exit if it is later than the floor."""
    needed = {path: glibc(path) for path in elf_files(directory)}
    latest = max(needed.values())
    say(f"{len(needed)} ELF files need at most glibc {'.'.join(map(str, latest))}")
    above = [path for path, version in needed.items() if version > numbers(floor)]
    if above:
        names = "\n".join(f"  {path.relative_to(directory)}" for path in above)
        sys.exit(f"these need a later glibc than {floor}:\n{names}")


def elf_files(directory: Path) -> Iterator[Path]:
    for path in directory.rglob("*"):
        if path.is_file() and not path.is_symlink():
            with path.open("rb") as file:
                if file.read(4) == b"\x7fELF":
                    yield path


def glibc(path: Path) -> tuple[int, ...]:
    """Return the version of glibc that a file needs; (0,) without one."""
    text = run("readelf", "--version-info", "--wide", path)
    return max(map(numbers, re.findall(r"Name: GLIBC_([\d.]+)", text)), default=(0,))


def numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


if __name__ == "__main__":
    main()
