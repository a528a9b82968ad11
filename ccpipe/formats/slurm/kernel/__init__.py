"""The compiled kernel of this format; None where the Python code is used instead."""

from types import ModuleType

from ccpipe.formats.kernel import load

KERNEL: ModuleType | None = load("ccpipe.formats.slurm.kernel._kernel")
