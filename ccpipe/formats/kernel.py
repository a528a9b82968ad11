"""The compiled kernels of formats, or Python code of the same results where they were not built.

``CCPIPE_KERNEL=python`` forces the Python code; with ``CCPIPE_KERNEL=compiled`` it is an error if a
kernel is missing.
"""

import importlib
import os
from types import ModuleType

from ccpipe.errors import ConfigError

FORMATS = ("gridengine", "lineprotocol", "sonar")
"""Formats with a kernel."""


def load(name: str) -> ModuleType | None:
    """Import a kernel by its full name; None where the Python code is to run.

    Raises
    ------
    ConfigError
        where ``CCPIPE_KERNEL`` has another value, or requires a kernel that was not built.

    """
    wanted = os.environ.get("CCPIPE_KERNEL", "")
    if wanted not in ("", "python", "compiled"):
        raise ConfigError(f"CCPIPE_KERNEL is {wanted!r}, not one of python, compiled")
    if wanted == "python":
        return None
    try:
        return importlib.import_module(name)
    except ImportError as error:
        if wanted:
            raise ConfigError(f"CCPIPE_KERNEL asks for the compiled kernel: {error}") from None
        return None


def kernels() -> dict[str, str]:
    """Return which code reads each format here: ``compiled`` or ``python``."""
    return {
        name: "python" if load(f"ccpipe.formats.{name}._kernel") is None else "compiled"
        for name in FORMATS
    }
