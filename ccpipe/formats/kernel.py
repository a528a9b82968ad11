"""Selects the compiled kernels, or their twins in Python if they were not built.

``CCPIPE_KERNEL=python`` forces the twins; ``CCPIPE_KERNEL=compiled`` refuses to start without the
kernels.
"""

import importlib
import os
from types import ModuleType

from ccpipe.errors import ConfigError

FORMATS = ("gridengine", "lineprotocol")


def load_kernel(package: str, name: str = "_kernel") -> ModuleType | None:
    """Import the kernel of a package; None if its twin is to be used.

    Raises ConfigError if ``CCPIPE_KERNEL`` has another value, or requires a kernel that was not
    built.
    """
    wanted = os.environ.get("CCPIPE_KERNEL", "")
    if wanted not in ("", "python", "compiled"):
        raise ConfigError(f"CCPIPE_KERNEL is {wanted!r}, not one of python, compiled")
    if wanted == "python":
        return None
    try:
        return importlib.import_module(f"{package}.{name}")
    except ImportError as error:
        if wanted:
            raise ConfigError(f"CCPIPE_KERNEL asks for the compiled kernel: {error}") from None
        return None


def kernels() -> dict[str, str]:
    return {
        name: "python" if load_kernel(f"ccpipe.formats.{name}.kernel") is None else "compiled"
        for name in FORMATS
    }
