"""Reads the part of HDF5 that Slurm's profile files are made of, and nothing else.

``libhdf5`` trusts what it reads. Of some 10 000 real profile files with a few bytes changed, two
made version 2.0 abort the process with a corrupted heap; profile files belong to users, and whoever
merges them is often somebody else. It also refuses what a killed writer left, and reads a packet
table of chunks of ten records slowly. So files are read here: about 400 lines, every address and
length checked, memory bounded by the size of the file.

Source: HDF5 File Format Specification 3.0, the structures that ``libhdf5`` writes by default up to
1.14: superblock version 0 or 1, groups as symbol tables, object headers of version 1, chunks
below a version 1 B-tree, deflate. Files with anything newer raise ``NewerFormatError`` and are
converted by ``libhdf5`` in a process of its own (``ccpipe.formats.slurm_profile.newer``).
"""

from ccpipe.formats.slurm_profile.hdf5.arrays import Array, Records
from ccpipe.formats.slurm_profile.hdf5.dataset import Dataset
from ccpipe.formats.slurm_profile.hdf5.group import Group, open_root

__all__ = ["Array", "Dataset", "Group", "Records", "open_root"]
