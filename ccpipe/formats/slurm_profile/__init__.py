"""Profiles of Slurm's jobs: time series of energy, file systems, network and tasks, as HDF5 files.

The modern layout (Slurm 15.08 to today) is read and written, the legacy one (2.6 to 14.11) is read.
Both need h5py and numpy, of the extra ``profile``. A process of its own reads with h5py;
``writer`` and ``merge`` are imported from their modules, so that this one does not load it.

>>> from ccpipe.formats.slurm_profile import extract_csv, open_profile
>>> with open_profile("tests/data/slurm_profile/merged/job_17.h5") as profile:
...     energy = [table for table in profile.tables if table.series == "Energy"]
...     print(b"".join(extract_csv(energy))[:68].decode())
Step,Node,ElapsedTime,EpochTime,Power
0,c1,0,1795170874,200
0,c1,0,1

Source: Slurm Profile Accounting Plugin API, and the files that Slurm 22.05 and 24.11 write.
"""

from ccpipe.errors import MissingExtra

try:
    import numpy as np  # noqa: F401 - everything below needs it
except ImportError:
    raise MissingExtra("numpy", "profile") from None

from ccpipe.formats.slurm_profile.corrections import CORRECTIONS, recognize
from ccpipe.formats.slurm_profile.errors import (
    DamagedProfileError,
    ForeignProfileError,
    LiveProfileError,
    ProfileError,
)
from ccpipe.formats.slurm_profile.extract import (
    Level,
    all_fields,
    common_fields,
    extract_csv,
    extract_records,
    parse_level,
)
from ccpipe.formats.slurm_profile.hdf5 import Records
from ccpipe.formats.slurm_profile.items import (
    ItemRow,
    Peak,
    align_item,
    find_peaks,
    item_csv,
    list_names,
    sh5util_item_csv,
    zip_item,
)
from ccpipe.formats.slurm_profile.names import (
    JobSelection,
    NodeStepName,
    parse_file_name,
    parse_jobs,
)
from ccpipe.formats.slurm_profile.reader import Profile, last_runs, open_profile
from ccpipe.formats.slurm_profile.series import (
    SERIES,
    ProfileSeries,
    SeriesField,
    series_type,
)
from ccpipe.formats.slurm_profile.table import NodeStep, Table
from ccpipe.formats.slurm_profile.totals import FieldTotal

__all__ = [
    "CORRECTIONS",
    "SERIES",
    "DamagedProfileError",
    "FieldTotal",
    "ForeignProfileError",
    "ItemRow",
    "JobSelection",
    "Level",
    "LiveProfileError",
    "NodeStep",
    "NodeStepName",
    "Peak",
    "Profile",
    "ProfileError",
    "ProfileSeries",
    "Records",
    "SeriesField",
    "Table",
    "align_item",
    "all_fields",
    "common_fields",
    "extract_csv",
    "extract_records",
    "find_peaks",
    "item_csv",
    "last_runs",
    "list_names",
    "open_profile",
    "parse_file_name",
    "parse_jobs",
    "parse_level",
    "recognize",
    "series_type",
    "sh5util_item_csv",
    "zip_item",
]
