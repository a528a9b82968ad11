"""Which decoder runs: the compiled kernel, or where it was not built its twin in Python.

``CCPIPE_KERNEL=python`` forces the twin; ``CCPIPE_KERNEL=compiled`` refuses to start without the
kernel.
"""

import os
from types import ModuleType

from ccpipe.errors import ConfigError


def _load() -> ModuleType | None:
    wanted = os.environ.get("CCPIPE_KERNEL", "")
    if wanted not in ("", "python", "compiled"):
        raise ConfigError(f"CCPIPE_KERNEL is {wanted!r}, not one of python, compiled")
    if wanted == "python":
        return None
    try:
        from ccpipe.formats.lineprotocol import _kernel
    except ImportError as error:
        if wanted:
            raise ConfigError(f"CCPIPE_KERNEL asks for the compiled kernel: {error}") from None
        return None
    return _kernel


KERNEL: ModuleType | None = _load()


def kernel_name() -> str:
    """Say which decoder runs: ``compiled`` or ``python``."""
    return "python" if KERNEL is None else "compiled"
