"""NVIDIA's library NVML, through ``nvidia-ml-py``."""

import contextlib
import errno
import math
from pathlib import Path
from time import monotonic
from typing import Any

from ccpipe.errors import MissingExtra
from ccpipe.node.linux import proc

RENEW_SECONDS = 60.0
"""Minimum time between two initialisations because of a lost card."""


class Release:
    """A time for which this process does not use NVML, so that cards can be reset or partitioned.

    Each driver is let go at its next use, in the thread that uses it.
    """

    def __init__(self) -> None:
        """Begin without one."""
        self._until = -math.inf

    def begin(self, seconds: float) -> None:
        """Release NVML for so many seconds; 0 ends a release."""
        self._until = monotonic() + seconds

    @property
    def seconds_left(self) -> float:
        """Seconds until NVML is used again; 0 if it is not released."""
        return max(0.0, self._until - monotonic())


RELEASE = Release()
"""The one of this process."""


class Driver:
    """The driver's library, initialised on first use, and again after it failed."""

    def __init__(self, root: str) -> None:
        """Look for the driver below `root`; another than ``/`` is a captured tree."""
        self._version = Path(root, "proc/driver/nvidia/version")
        self._cards = Path(root, "proc/driver/nvidia/gpus")
        self._known: list[str] = []
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
            if there is no driver, it does not answer, or NVML is released.
        MissingExtra
            if there is a driver but no ``nvidia-ml-py``.

        """
        if RELEASE.seconds_left:
            self.reset()
            reason = f"NVML is released for another {RELEASE.seconds_left:.0f} s"
            raise OSError(errno.ENODEV, reason)
        if self._known != (listed := self._listed()):
            self.reset()  # NVML sees cards that were added only when it is initialised
            self._known = listed
        nvml = self._library()
        try:
            return nvml, nvml.nvmlDeviceGetCount()
        except nvml.NVMLError as error:
            self.reset()  # the driver was reset or updated meanwhile
            raise OSError(errno.EIO, f"NVML: {error}") from error

    def _listed(self) -> list[str]:
        """Return the cards that the driver has; none where it does not list them."""
        try:
            return sorted(path.name for path in self._cards.iterdir())
        except OSError:
            return []

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
