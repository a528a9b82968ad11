"""The compiled kernel of this format; None if the Python code is used instead."""

from ccpipe.formats.kernel import load_kernel

KERNEL = load_kernel(__name__)
