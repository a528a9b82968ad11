"""Slurm's profile accounting API: time series of a step on a node, in a file that sh5util reads.

========================================== ==========================================
call of the document                       here, of ``ProfileGather``
========================================== ==========================================
init, fini                                 ``init``, ``fini``
conf_options, conf_set, conf_get           the same
node_step_start, node_step_end             the same
child_forked                               the same (the document has its text under another name)
task_start, task_end                       the same
add_sample_data(type, data)                ``add_sample_data(Selection.TASK, sample)``
create_group, create_dataset, is_active    the same: Slurm since 15.08
add_sample_data(id, data, time)            the same, with the number of a dataset
========================================== ==========================================

Where the document returns SLURM_ERROR, ``ProfileGatherError`` is raised.

Source: Slurm Profile Accounting Plugin API (AcctGatherProfileType).
"""

from ccpipe.node.gather.profile.gather import Conf, ProfileGather, ProfileGatherError, Step
from ccpipe.node.gather.profile.selection import SeriesSelection, parse_frequencies, parse_selection

__all__ = [
    "Conf",
    "ProfileGather",
    "ProfileGatherError",
    "SeriesSelection",
    "Step",
    "parse_frequencies",
    "parse_selection",
]
