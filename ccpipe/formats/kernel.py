"""Selects the compiled kernels, or the Python fallback if they were not built.

``CCPIPE_KERNEL=python`` forces the fallback; ``CCPIPE_KERNEL=compiled`` makes a missing kernel an
error.
"""

import importlib
import os
from types import ModuleType

from ccpipe.errors import ConfigError

FORMATS = ("gridengine", "lineprotocol")


def load_kernel(package: str, name: str = "_kernel") -> ModuleType | None:
    """Import the kernel of a package; None selects the Python fallback.

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
            raise ConfigError(f"CCPIPE_KERNEL requires the compiled kernel: {error}") from None
        return None


def kernels() -> dict[str, str]:
    return {
        name: "python" if load_kernel(f"ccpipe.formats.{name}.kernel") is None else "compiled"
        for name in FORMATS
    }
