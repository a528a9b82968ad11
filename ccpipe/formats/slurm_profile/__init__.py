"""Profiles of Slurm's jobs: time series of energy, file systems, network and tasks, as HDF5 files.

The modern layout (Slurm 15.08 to today) is read and written, the legacy one (2.6 to 14.11) is read.
Both need h5py and numpy, of the extra ``profile``. A process of its own reads with h5py: only
``writer`` and ``merge`` load it.

Source: Slurm Profile Accounting Plugin API, and the files that Slurm 22.05 and 24.11 write.
"""

from ccpipe.errors import MissingExtra

try:
    import numpy as np  # noqa: F401 - every module needs it
except ImportError:
    raise MissingExtra("numpy", "profile") from None
