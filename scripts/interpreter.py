"""Build the CPython of the packages: ``python -m scripts.interpreter --out DIR``.

The sources are Debian's, with its fixes. zig's clang compiles them for every Linux with glibc 2.28
or later (RHEL 8), as ``scripts/wheels.py`` does the kernels. OpenSSL, SQLite, libffi, zlib, bzip2
and xz are linked statically: the directory needs nothing but glibc, and works wherever it lies.

It needs Debian with the packages in ``NEEDED``, and a quarter of an hour of two cores.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from scripts.wheels import FLOOR, run, say

VERSION = "3.13"
SUITE = "trixie"
"""The Debian release whose source packages are used."""
TARGET = f"x86_64-linux-gnu.{FLOOR}"
ZIG = "ziglang>=0.14"
LIBRARIES = ("zlib", "bzip2", "xz-utils", "libffi", "sqlite3", "openssl")

NEEDED = {
    "ar": "binutils",
    "autoreconf": "autoconf",
    "automake": "automake",
    "dpkg-source": "dpkg-dev",
    "libtoolize": "libtool libltdl-dev",
    "make": "make",
    "patch": "patch",
    "perl": "perl",
    "tclsh": "tcl",
}
"""Debian's packages of programs."""

ABSENT = ("_curses", "_curses_panel", "_dbm", "_gdbm", "_tkinter", "_uuid", "nis", "readline")
"""Modules of the standard library that ccpipe does not use; they need more libraries."""
OPENSSL_ABSENT = """
apps docs engine module shared tests
aria camellia cast cmp cms comp dtls gost idea mdc2 quic rc2 rc4 seed sm2 sm3 sm4 srp ts whirlpool
"""
"""Parts of OpenSSL that TLS in Python does not use."""
REMOVED = ("idlelib", "test", "tkinter", "turtledemo", "config-*/libpython*.a")
"""Parts of the standard library that are not kept."""

CERTIFICATES = '''\
"""Find the certificates of Red Hat's systems, which OpenSSL's own search path does not have."""

import os

if not os.path.exists("/etc/ssl/cert.pem") and os.path.exists("/etc/pki/tls/cert.pem"):
    os.environ.setdefault("SSL_CERT_FILE", "/etc/pki/tls/cert.pem")
'''


def main() -> None:
    """Build the interpreter; exits with the status of what fails."""
    arguments = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    arguments.add_argument("--out", type=Path, required=True, help="a new directory")
    arguments.add_argument("--version", default=VERSION, help=f"default: {VERSION}")
    arguments.add_argument("--suite", default=SUITE, help=f"of Debian; default: {SUITE}")
    given = arguments.parse_args()
    build_interpreter(given.out.absolute(), version=given.version, suite=given.suite)
    print(given.out)


def build_interpreter(out: Path, *, version: str = VERSION, suite: str = SUITE) -> None:
    """Write the directory of a relocatable CPython."""
    missing = " ".join(NEEDED[name] for name in NEEDED if not shutil.which(name))
    if missing:
        sys.exit(f"apt-get install {missing}: these programs are missing")
    with tempfile.TemporaryDirectory(prefix="ccpipe-interpreter-") as name:
        directory = Path(name)
        sources = Sources(directory / "sources", suite)
        build = Build(directory)
        for library in LIBRARIES:
            say(f"compiling {library}")
            getattr(build, library.replace("-", "_"))(sources.unpack(library))
        say(f"compiling Python {version}")
        build.python(sources.unpack(f"python{version}"), version, out)
        for package in (*LIBRARIES, f"python{version}"):
            licence = out / "share" / "licenses" / package / "copyright"
            licence.parent.mkdir(parents=True)
            shutil.copy(sources.directory / package / "tree" / "debian" / "copyright", licence)


class Sources:
    """Debian's source packages of one release, through the machine's own mirror."""

    def __init__(self, directory: Path, suite: str) -> None:
        """Fetch the index of the release; the machine's own lists stay as they are."""
        self.directory = directory
        lists = directory / "apt" / "lists"
        (lists / "partial").mkdir(parents=True)
        entry = directory / "apt" / "suite.sources"
        entry.write_text(
            f"Types: deb-src\nURIs: {mirror()}\nSuites: {suite}\nComponents: main\n"
            "Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg\n"
        )
        settings = {
            "Dir::State::Lists": lists,
            "Dir::State::status": "/dev/null",
            "Dir::Cache": directory / "apt",
            "Dir::Etc::SourceList": entry,
            "Dir::Etc::SourceParts": "/dev/null",
            "APT::Sandbox::User": "root",
        }
        self.options = [word for key in settings for word in ("-o", f"{key}={settings[key]}")]
        run("apt-get", *self.options, "update", "--quiet")

    def unpack(self, package: str) -> Path:
        """Return the unpacked source of a package, with Debian's fixes.

        The newest version that the mirror has: its index can be ahead of its files.
        """
        text = run("apt-cache", *self.options, "showsrc", package)
        versions = sorted(re.findall(r"^Version: (.+)$", text, re.MULTILINE), key=natural)
        target = self.directory / package
        for version in reversed(versions):
            target.mkdir()
            words = ["apt-get", *self.options, "source", "--only-source", "--download-only"]
            words.append(f"{package}={version}")
            done = subprocess.run(words, cwd=target, capture_output=True, check=False)  # noqa: S603
            if not done.returncode:
                return self._unpack(target, package, version)
            shutil.rmtree(target)
        sys.exit(f"the mirror has no source of {package}: tried {', '.join(versions) or 'none'}")

    def _unpack(self, target: Path, package: str, version: str) -> Path:
        say(f"{package} {version}")
        [description] = target.glob("*.dsc")
        tree = target / "tree"
        if package.startswith("python"):
            # Its .diff files move directories to where Debian has them; its .patch files are fixes.
            run("dpkg-source", "--no-check", "--skip-patches", "-x", description, tree)
            series = (tree / "debian/patches/series").read_text().split()
            for patch in (name for name in series if name.endswith(".patch")):
                options = ("--strip=1", "--silent", f"--directory={tree}")
                run("patch", *options, f"--input={tree}/debian/patches/{patch}")
        else:
            run("dpkg-source", "--no-check", "-x", description, tree)
        return tree


class Build:
    """Compiles into one directory with static libraries, then Python with them."""

    def __init__(self, directory: Path) -> None:
        """Make the environment with the compiler."""
        self.libraries = directory / "libraries"
        (self.libraries / "lib").mkdir(parents=True)
        (self.libraries / "include").mkdir()
        self.installed = directory / "installed"
        run(sys.executable, "-m", "venv", directory / "tools")
        run(directory / "tools/bin/python", "-m", "pip", "install", "--quiet", ZIG)
        [zig] = directory.glob("tools/lib/python*/site-packages/ziglang/zig")
        # zig's defaults are -fsanitize without -O, and -Werror=date-time.
        self.compiler = f"{zig} cc -target {TARGET} -g0 -fno-sanitize=undefined -Wno-date-time"
        self.environ = {
            "CC": self.compiler,
            "CXX": "false",  # nothing is in C++
            "CFLAGS": "-O2 -fPIC",
            "CPPFLAGS": f"-I{self.libraries}/include",
            "LDFLAGS": f"-L{self.libraries}/lib",
            "PKG_CONFIG_LIBDIR": f"{self.libraries}/lib/pkgconfig",
        }
        self.jobs = f"-j{os.cpu_count()}"

    def run(self, tree: Path, program: str, *arguments: object) -> None:
        run(program, *arguments, environ=self.environ, directory=tree)

    def configure(self, tree: Path, *options: str) -> None:
        self.run(tree, "./configure", f"--prefix={self.libraries}", *options)

    def zlib(self, tree: Path) -> None:
        self.configure(tree, "--static")
        self.run(tree, "make", self.jobs, "install")

    def bzip2(self, tree: Path) -> None:
        cflags = f"CFLAGS={self.environ['CFLAGS']} -D_FILE_OFFSET_BITS=64"
        self.run(tree, "make", self.jobs, f"CC={self.compiler}", cflags, "libbz2.a")
        shutil.copy(tree / "libbz2.a", self.libraries / "lib")
        shutil.copy(tree / "bzlib.h", self.libraries / "include")

    def xz_utils(self, tree: Path) -> None:
        programs = ("xz", "xzdec", "lzmadec", "lzmainfo", "lzma-links", "scripts", "doc", "nls")
        self.configure(tree, "--disable-shared", *(f"--disable-{part}" for part in programs))
        self.run(tree, "make", self.jobs, "install")

    def libffi(self, tree: Path) -> None:
        self.run(tree, "autoreconf", "--install", "--force")
        self.configure(tree, "--disable-shared", "--disable-docs", "--disable-multi-os-directory")
        self.run(tree, "make", self.jobs, "install")

    def sqlite3(self, tree: Path) -> None:
        # Configured for the usual compiler: it only writes one file here.
        run("./configure", "--disable-tcl", "--disable-readline", directory=tree)
        run("make", "sqlite3.c", directory=tree)
        compiler = [*self.compiler.split(), *self.environ["CFLAGS"].split()]
        self.run(tree, *compiler, "-DSQLITE_THREADSAFE=1", "-c", "sqlite3.c")
        self.run(tree, "ar", "rcs", self.libraries / "lib/libsqlite3.a", "sqlite3.o")
        shutil.copy(tree / "sqlite3.h", self.libraries / "include")

    def openssl(self, tree: Path) -> None:
        place = ["--libdir=lib", f"--prefix={self.libraries}", "--openssldir=/etc/ssl"]
        absent = [f"no-{part}" for part in OPENSSL_ABSENT.split()]
        self.run(tree, "perl", "Configure", "linux-x86_64", *place, *absent)
        self.run(tree, "make", self.jobs, "build_libs")
        self.run(tree, "make", "install_dev")

    def python(self, tree: Path, version: str, out: Path) -> None:
        """Compile Python and copy what is kept of it."""
        prefix = "/opt/ccpipe"
        absent = [f"py_cv_module_{module}=n/a" for module in ABSENT]
        changed = run("dpkg-parsechangelog", "--show-field=Timestamp", directory=tree)
        self.environ["SOURCE_DATE_EPOCH"] = changed.strip()
        self.run(
            tree, "./configure", f"--prefix={prefix}", "--disable-test-modules",
            "--without-ensurepip", f"--with-openssl={self.libraries}", *absent,
        )  # fmt: skip
        self.run(tree, "make", self.jobs)
        # --help: modules are compiled later, in another way.
        options = (f"DESTDIR={self.installed}", "COMPILEALL_OPTS=--help")
        self.run(tree, "make", "altinstall", *options)
        installed = self.installed / prefix.removeprefix("/")
        library = installed / "lib" / f"python{version}"
        for pattern in REMOVED:
            for path in library.glob(pattern):
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        program = installed / "bin" / f"python{version}"
        for path in [program, *library.glob("lib-dynload/*.so")]:
            run("strip", "--strip-unneeded", path)
        self.forget_compiler(library)
        (library / "site-packages" / "sitecustomize.py").write_text(CERTIFICATES)
        out.mkdir(parents=True)
        shutil.copytree(installed / "lib", out / "lib", symlinks=True)
        shutil.copytree(installed / "include", out / "include")
        (out / "bin").mkdir()
        shutil.copy(program, out / "bin")
        (out / "bin" / "python3").symlink_to(f"python{version}")

    def forget_compiler(self, library: Path) -> None:
        """Name the usual compiler in what is used to build extensions: this one is temporary."""
        for path in [*library.glob("_sysconfigdata*.py"), *library.glob("config-*/Makefile")]:
            path.write_text(path.read_text().replace(self.compiler, "cc"))


def mirror() -> str:
    """Return the address of Debian's archive that this machine uses."""
    entry = re.compile(r"^(?:URIs:|deb )\s*(?:\[.*\] )?(\S+/debian/?)(?:\s|$)", re.MULTILINE)
    for path in sorted(Path("/etc/apt").rglob("*")):
        if path.suffix in {".list", ".sources"} and (found := entry.search(path.read_text())):
            return found[1]
    sys.exit("no mirror of Debian in /etc/apt: the sources of Python come from there")


def natural(version: str) -> list[str | int]:
    """Return a key that sorts 3.10 after 3.9."""
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", version)]


if __name__ == "__main__":
    main()
