"""The one compiled part: the line-protocol kernel, which ccpipe runs without where it must.

Everything else about the package stands in pyproject.toml.
"""

import os

from setuptools import Extension, setup

FOLDER = "ccpipe/formats/lineprotocol"
FLAGS = os.environ.get("CCPIPE_KERNEL_FLAGS", "").split()  # sanitizers: fuzz/sanitize.sh


def kernel() -> list[Extension]:
    """Return the extension, or none where Cython is missing or fails; no compiler is no error."""
    try:
        from Cython.Build import cythonize

        extensions: list[Extension] = cythonize(
            [
                Extension(
                    "ccpipe.formats.lineprotocol._kernel",
                    [f"{FOLDER}/_kernel.pyx"],
                    depends=[
                        f"{FOLDER}/{part}.hpp" for part in ("index", "scan", "write", "samples")
                    ],
                    extra_compile_args=["-std=c++17", "-O3", "-fvisibility=hidden", *FLAGS],
                    extra_link_args=FLAGS,
                    language="c++",
                )
            ],
            language_level=3,
        )
    except Exception as error:  # noqa: BLE001 - the twin in Python does the same work
        print(f"ccpipe: the compiled kernel is left out: {error}")  # noqa: T201
        return []
    for extension in extensions:
        extension.optional = True  # cythonize() forgets it
    return extensions


setup(ext_modules=kernel())
