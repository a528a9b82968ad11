"""The compiled kernel of this format; None where its twin in Python does the work."""

from types import ModuleType

from ccpipe.formats.kernel import load

KERNEL: ModuleType | None = load("ccpipe.formats.lineprotocol._kernel")
