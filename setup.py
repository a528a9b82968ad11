"""The compiled parts: kernels, which ccpipe runs without where it must.

Everything else about the package stands in pyproject.toml.
"""

import os

from setuptools import Extension, setup

FLAGS = os.environ.get("CCPIPE_KERNEL_FLAGS", "").split()  # sanitizers: fuzz/sanitize.sh
HEADERS = {
    "formats/lineprotocol": ("index", "scan", "write", "samples"),
    "formats/gridengine": ("scan", "columns", "search"),
    "sinks/postgres": (),
}
"""Of each kernel, by its folder in the package."""


def kernel(package: str) -> Extension:
    """Return what one kernel is built from."""
    folder = f"ccpipe/{package}"
    headers = [f"{folder}/{part}.hpp" for part in HEADERS[package]]
    return Extension(
        f"{folder.replace('/', '.')}._kernel",
        [f"{folder}/_kernel.pyx"],
        depends=[*headers, "ccpipe/formats/lineprotocol/scan.hpp"],
        extra_compile_args=["-std=c++17", "-O3", "-fvisibility=hidden", *FLAGS],
        extra_link_args=FLAGS,
        language="c++",
    )


def kernels() -> list[Extension]:
    """Return the extensions, or none where Cython is missing or fails; no compiler is no error."""
    try:
        from Cython.Build import cythonize

        extensions: list[Extension] = cythonize(
            [kernel(package) for package in HEADERS], language_level=3
        )
    except Exception as error:  # noqa: BLE001 - twins in Python do the same work
        print(f"ccpipe: the compiled kernels are left out: {error}")  # noqa: T201
        return []
    for extension in extensions:
        extension.optional = True  # cythonize() forgets it
    return extensions


setup(ext_modules=kernels())
