"""NVIDIA's library NVML, through ``nvidia-ml-py``."""

import contextlib
import errno
import functools
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic
from typing import Any, TypeVar

from ccpipe.errors import MissingExtra
from ccpipe.node.linux import proc

T = TypeVar("T")
Note = Callable[[str], None]
RENEW_SECONDS = 60.0
"""Minimum time between two initialisations because of a lost GPU."""


class Release:
    """A time for which this process does not use NVML, so that GPUs can be reset or partitioned.

    Each driver is released at its next use, in the thread that uses it.
    """

    def __init__(self) -> None:
        self._until = -math.inf

    def begin(self, seconds: float) -> None:
        """Release NVML for so many seconds; 0 ends a release."""
        self._until = monotonic() + seconds

    @property
    def seconds_left(self) -> float:
        return max(0.0, self._until - monotonic())


RELEASE = Release()  # of this process


class Driver:
    """The driver's library, initialised on first use, and again after it failed."""

    def __init__(self, root: str, before_reset: Callable[[Any], None] = lambda _: None) -> None:
        """Look for the driver below `root`; `before_reset` frees the library's objects."""
        self._before_reset = before_reset
        self._version = Path(root, "proc/driver/nvidia/version")
        self._gpus = Path(root, "proc/driver/nvidia/gpus")
        self._known: list[str] = []
        self._nvml: Any = None
        self._renewed = -RENEW_SECONDS

    def is_there(self) -> bool:
        return self._version.exists()

    def gpus(self) -> tuple[Any, int]:
        """Return the NVML module, and the number of GPUs."""
        if RELEASE.seconds_left:
            self.reset()
            reason = f"NVML is released for another {RELEASE.seconds_left:.0f} s"
            raise OSError(errno.ENODEV, reason)
        if self._known != (listed := self._listed()):
            self.reset()  # NVML finds added GPUs only when it is initialised
            self._known = listed
        nvml = self._library()
        try:
            return nvml, nvml.nvmlDeviceGetCount()
        except nvml.NVMLError as error:
            self.reset()  # the driver was reset or updated meanwhile
            raise OSError(errno.EIO, f"NVML: {error}") from error

    def _listed(self) -> list[str]:
        try:
            return sorted(path.name for path in self._gpus.iterdir())
        except OSError:
            return []

    def reset(self) -> None:
        """Release the driver, and initialise it again next time."""
        nvml, self._nvml = self._nvml, None
        if nvml is not None:
            with contextlib.suppress(nvml.NVMLError):
                self._before_reset(nvml)
            with contextlib.suppress(nvml.NVMLError):
                nvml.nvmlShutdown()

    def renew(self) -> None:
        """Reset at most once a minute: it is slow, and a lost GPU may stay lost."""
        if monotonic() - self._renewed >= RENEW_SECONDS:
            self._renewed = monotonic()
            self.reset()

    def _library(self) -> Any:
        if self._nvml is None:
            proc.text(self._version)
            try:
                import pynvml
            except ImportError:
                raise MissingExtra("nvidia-ml-py", "nvidia") from None
            try:
                pynvml.nvmlInit()
            except pynvml.NVMLError as error:
                raise OSError(errno.ENODEV, f"NVML: {error}") from error
            self._nvml = pynvml
        return self._nvml


def supported(
    nvml: Any, reading: Callable[[Any, Any], Iterator[T]], gpu: Any, note: Note = lambda _: None
) -> Iterator[T]:
    """Yield the values of a reading; stops if the GPU does not support it, or it fails.

    Failures other than a lack of support are passed to `note`.

    Raises
    ------
    NVMLError
        if the GPU or the driver is lost: further calls would fail too.

    """
    try:
        yield from reading(nvml, gpu)
    except nvml.NVMLError as error:
        if error.value in codes(nvml, FATAL):
            raise
        if error.value not in codes(nvml, UNSUPPORTED):
            note(f"{_name(reading)}: {error}")


def _name(reading: Any) -> str:
    return str(getattr(reading, "func", reading).__name__).strip("_").replace("_", " ")


FATAL = (
    "GPU_IS_LOST", "RESET_REQUIRED", "UNINITIALIZED", "DRIVER_NOT_LOADED",
    "LIB_RM_VERSION_MISMATCH",
)  # fmt: skip
"""Errors after which a GPU or the driver does not answer until it is initialised again."""
UNSUPPORTED = (
    "NOT_SUPPORTED", "FUNCTION_NOT_FOUND", "INVALID_ARGUMENT", "NOT_FOUND", "NO_DATA",
    "ARGUMENT_VERSION_MISMATCH", "DEPRECATED",
)  # fmt: skip
"""Errors if a GPU, or an older driver, does not support a request."""


@functools.cache
def codes(nvml: Any, names: tuple[str, ...]) -> frozenset[int]:
    """Return the codes of errors; an older nvidia-ml-py has fewer."""
    found = (getattr(nvml, f"NVML_ERROR_{name}", None) for name in names)
    return frozenset(code for code in found if code is not None)
