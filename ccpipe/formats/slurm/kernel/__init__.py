"""The compiled kernel of this format; None where the Python code is used instead."""

from types import ModuleType

from ccpipe.formats.kernel import load_kernel

KERNEL: ModuleType | None = load_kernel("ccpipe.formats.slurm.kernel._kernel")
