"""What Slurm's commands print, text and JSON of 22.05 to 26.05, as records in one set of units.

=====================  ==================================================  =====================
function               reads                                               into
=====================  ==================================================  =====================
``sacct.read``         ``sacct -P``, ``sstat -P``                          ``SacctRow``
``sacct_json``         ``sacct --json``, slurmrestd's ``slurmdb``          ``SacctRow``
``squeue.read``        ``squeue -o``, ``squeue -O``                        ``LiveJob``
``scontrol``           ``scontrol show job``                               ``LiveJob``
``sinfo``              ``sinfo -o``, ``sinfo -O``                          ``Cluster``
=====================  ==================================================  =====================

What fits nothing is handed back as ``RejectedRow``, and the rest goes on.
"""

from ccpipe.formats.slurm.cluster import Cluster, Node, Partition, read_sinfo
from ccpipe.formats.slurm.json import read_json as read_sacct_json
from ccpipe.formats.slurm.records import (
    Allocation,
    LiveJob,
    ParsedOutput,
    RejectedRow,
    SacctRow,
    SlurmId,
)
from ccpipe.formats.slurm.text import scontrol
from ccpipe.formats.slurm.text.sacct import SacctReader
from ccpipe.formats.slurm.text.sacct import read as read_sacct
from ccpipe.formats.slurm.text.squeue import SqueueReader
from ccpipe.formats.slurm.text.squeue import read as read_squeue
from ccpipe.formats.slurm.values import Gres, gpu_count, gres, index_list, tres

__all__ = [
    "Allocation",
    "Cluster",
    "Gres",
    "LiveJob",
    "Node",
    "ParsedOutput",
    "Partition",
    "RejectedRow",
    "SacctReader",
    "SacctRow",
    "SlurmId",
    "SqueueReader",
    "gpu_count",
    "gres",
    "index_list",
    "read_sacct",
    "read_sacct_json",
    "read_sinfo",
    "read_squeue",
    "scontrol",
    "tres",
]
