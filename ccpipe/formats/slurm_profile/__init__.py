"""Profiles of Slurm's jobs: time series of energy, file systems, network and tasks, as HDF5 files.

Reads and writes the modern layout (Slurm 15.08 to today), reads the legacy one (2.6 to 14.11).
Requires h5py and numpy, of the extra ``profile``. Files are read with h5py in a separate process;
in this one only ``writer`` and ``merge`` import it.

Source: Slurm Profile Accounting Plugin API, and the files that Slurm 22.05 and 24.11 write.
"""

from ccpipe.errors import MissingExtra

try:
    import numpy as np  # noqa: F401 - every module needs it
except ImportError:
    raise MissingExtra("numpy", "hdf5") from None
