"""NVIDIA's library NVML, through ``nvidia-ml-py``."""

import contextlib
import errno
from pathlib import Path
from time import monotonic
from typing import Any

from ccpipe.errors import MissingExtra
from ccpipe.node.linux import proc

RENEW_SECONDS = 60.0
"""Minimum time between two initialisations because of a lost card."""


class Driver:
    """The driver's library, initialised on first use, and again after it failed."""

    def __init__(self, root: str) -> None:
        """Look for the driver below `root`; another than ``/`` is a captured tree."""
        self._version = Path(root, "proc/driver/nvidia/version")
        self._nvml: Any = None
        self._renewed = -RENEW_SECONDS

    def is_there(self) -> bool:
        """Return whether the driver is loaded; the library is not touched."""
        return self._version.exists()

    def cards(self) -> tuple[Any, int]:
        """Return the module that knows NVML, and how many cards it has.

        Raises
        ------
        OSError
            if there is no driver, or it does not answer.
        MissingExtra
            if there is a driver but no ``nvidia-ml-py``.

        """
        nvml = self._library()
        try:
            return nvml, nvml.nvmlDeviceGetCount()
        except nvml.NVMLError as error:
            self.reset()  # the driver was reset or updated meanwhile
            raise OSError(errno.EIO, f"NVML: {error}") from error

    def reset(self) -> None:
        """Let go of the driver, and initialise it again next time."""
        nvml, self._nvml = self._nvml, None
        if nvml is not None:
            with contextlib.suppress(nvml.NVMLError):
                nvml.nvmlShutdown()

    def renew(self) -> None:
        """Reset at most once a minute: it takes long, and a lost card may stay lost."""
        if monotonic() - self._renewed >= RENEW_SECONDS:
            self._renewed = monotonic()
            self.reset()

    def _library(self) -> Any:
        """Return the module that knows NVML, initialised."""
        if self._nvml is None:
            proc.text(self._version)
            try:
                import pynvml
            except ImportError:
                raise MissingExtra("nvidia-ml-py", "gpu") from None
            try:
                pynvml.nvmlInit()
            except pynvml.NVMLError as error:
                raise OSError(errno.ENODEV, f"NVML: {error}") from error
            self._nvml = pynvml
        return self._nvml
