"""Numbers that stand for none: Slurm's sentinels, and what becomes of them in its plug-ins."""

import numpy as np

from ccpipe.formats.slurm_profile.hdf5 import Array

INFINITE = 2**64 - 1
"""``INFINITE64``: stored where a plug-in has no value."""
NO_VALUE = 2**64 - 2
"""``NO_VAL64``."""
INFINITE_MEBIBYTES = INFINITE // 2**20
"""17592186044415: ``INFINITE64`` bytes as MiB. No number of bytes can be larger."""


def find_missing(values: Array, *, mebibytes: bool) -> Array:
    """Return which values stand for none.

    Beside the sentinels these are numbers that are not finite, sentinels that were stored as
    floating point numbers (1.8446744073709552e19), and in a field of `mebibytes` whatever is
    larger than any number of bytes: Slurm 23.02 and later do not set ``GPUMemMB`` in the first
    record of a task.
    """
    if values.dtype.kind == "f":
        limit = float(INFINITE_MEBIBYTES if mebibytes else NO_VALUE)
        missing: Array = ~(values < limit) | ~np.isfinite(values)
        return missing if mebibytes else missing | (values == float(INFINITE_MEBIBYTES))
    if mebibytes:
        return np.asarray(values >= np.uint64(INFINITE_MEBIBYTES))
    return np.asarray((values >= np.uint64(NO_VALUE)) | (values == np.uint64(INFINITE_MEBIBYTES)))
