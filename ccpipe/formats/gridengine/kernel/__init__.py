"""The compiled kernel of this format; None where the Python code is used instead."""

from ccpipe.formats.kernel import load

KERNEL = load(__name__)
