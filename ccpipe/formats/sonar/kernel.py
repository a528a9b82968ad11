"""The compiled kernel of this format; None where its twins in Python do the work."""

from types import ModuleType

from ccpipe.formats.kernel import load

KERNEL: ModuleType | None = load("ccpipe.formats.sonar._kernel")
