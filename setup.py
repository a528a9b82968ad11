"""The compiled parts, which ccpipe runs without where it must, and files shipped beside the code.

With ``CCPIPE_REQUIRE_KERNELS`` in the environment, a part that cannot be compiled is an error.
Everything else about the package stands in pyproject.toml.
"""

import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_py import build_py

REQUIRED = bool(os.environ.get("CCPIPE_REQUIRE_KERNELS"))
FLAGS = os.environ.get("CCPIPE_KERNEL_FLAGS", "").split()  # sanitizers: fuzz/sanitize.sh
KERNELS = {
    "bus/nats/protocol/_frames": (),
    "formats/gridengine/kernel/_kernel": ("scan", "columns", "search"),
    "formats/lineprotocol/kernel/_kernel": (
        "encodings",
        "index",
        "join",
        "parts",
        "samples",
        "scan",
        "utf8",
        "write",
    ),
}
"""The headers of each kernel."""

SHIPPED = (
    "nats.conf",
    "bridges/*.toml",
    "bridges/README.md",
    "bridges/systemd/*",
    "docs/**/*.md",
    "docs/**/*.json",
)
"""What goes into the wheel beside the code."""


def static_library() -> list[str]:
    """Return the flags that link the C++ library statically, if the compiler has it so.

    The kernels use little of it; the shared library would be a megabyte of each process.
    """
    if sys.platform != "linux" or FLAGS:
        return []
    compiler = shlex.split(os.environ.get("CXX") or sysconfig.get_config_var("CXX") or "c++")
    question = [*compiler, "-print-file-name=libstdc++.a"]
    try:
        answer = subprocess.run(question, capture_output=True, text=True, check=False).stdout  # noqa: S603
    except OSError:
        return []
    if "/" not in answer:  # some distributions have it in a package of its own
        return []
    return ["-static-libstdc++", "-static-libgcc", "-Wl,--exclude-libs,ALL", "-Wl,--gc-sections"]


def kernel(path: str) -> Extension:
    """Return what one kernel is built from."""
    source = Path("ccpipe", path)
    headers = [f"{source.parent}/{part}.hpp" for part in KERNELS[path]]
    headers += map(str, source.parent.glob("*.pxi"))
    return Extension(
        ".".join(source.parts),
        [f"{source}.pyx"],
        depends=[*headers, *map(str, Path("ccpipe/formats/lineprotocol/kernel").glob("*.hpp"))],
        extra_compile_args=["-std=c++17", "-O3", "-fvisibility=hidden", *FLAGS],
        extra_link_args=[*static_library(), *FLAGS],
        language="c++",
    )


def kernels() -> list[Extension]:
    """Return the extensions, or none where Cython is missing or fails; no compiler is no error."""
    try:
        from Cython.Build import cythonize

        extensions: list[Extension] = cythonize(
            [kernel(path) for path in KERNELS], language_level=3
        )
    except Exception as error:  # twins in Python do the same work
        if REQUIRED:
            raise
        print(f"ccpipe: the compiled kernels are left out: {error}")  # noqa: T201
        return []
    for extension in extensions:
        extension.optional = not REQUIRED  # cythonize() forgets it
    return extensions


def remove_built() -> None:
    """Remove kernels of an earlier editable install: one that fails now must not stay as it was."""
    for path in KERNELS:
        Path("ccpipe", f"{path}{EXTENSION_SUFFIXES[0]}").unlink(missing_ok=True)


class BuildWithShippedFiles(build_py):
    """Copies what a site needs into the wheel: ``ccpipe/cli/recipe/shipped.py`` finds it.

    An editable install needs no copy, and compiles the kernels into the tree after this.
    """

    def run(self) -> None:
        """Build as usual, then copy."""
        super().run()
        if self.editable_mode:
            remove_built()
            return
        top = Path(__file__).parent
        target = Path(self.build_lib, "ccpipe", "shipped")
        shutil.rmtree(target, ignore_errors=True)
        for pattern in SHIPPED:
            for path in sorted(top.glob(pattern)):
                copy = target / path.relative_to(top)
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, copy)


setup(ext_modules=kernels(), cmdclass={"build_py": BuildWithShippedFiles})
