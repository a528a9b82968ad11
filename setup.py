"""The compiled parts: kernels of formats and of NATS, which ccpipe runs without where it must.

Everything else about the package stands in pyproject.toml.
"""

import os
from pathlib import Path

from setuptools import Extension, setup

FLAGS = os.environ.get("CCPIPE_KERNEL_FLAGS", "").split()  # sanitizers: fuzz/sanitize.sh
HEADERS = {
    "lineprotocol": ("encodings", "index", "samples", "scan", "utf8", "write"),
    "gridengine": ("scan", "columns", "search"),
}
"""Of each kernel, by the package of its format."""


def kernel(package: str) -> Extension:
    """Return what the kernel of one format is built from."""
    folder = f"ccpipe/formats/{package}"
    headers = [f"{folder}/{part}.hpp" for part in HEADERS[package]]
    headers += map(str, Path(folder).glob("*.pxi"))
    headers.append("ccpipe/formats/lineprotocol/scan.hpp")
    return compiled(f"ccpipe.formats.{package}._kernel", headers)


def compiled(name: str, headers: list[str]) -> Extension:
    """Return what one compiled module is built from."""
    return Extension(
        name,
        [f"{name.replace('.', '/')}.pyx"],
        depends=headers,
        extra_compile_args=["-std=c++17", "-O3", "-fvisibility=hidden", *FLAGS],
        extra_link_args=FLAGS,
        language="c++",
    )


def kernels() -> list[Extension]:
    """Return the extensions, or none where Cython is missing or fails; no compiler is no error."""
    try:
        from Cython.Build import cythonize

        parts = [*map(kernel, HEADERS), compiled("ccpipe.bus.nats._frames", [])]
        extensions: list[Extension] = cythonize(parts, language_level=3)
    except Exception as error:  # noqa: BLE001 - twins in Python do the same work
        print(f"ccpipe: the compiled kernels are left out: {error}")  # noqa: T201
        return []
    for extension in extensions:
        extension.optional = True  # cythonize() forgets it
    return extensions


setup(ext_modules=kernels())
