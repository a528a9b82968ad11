"""What Slurm's commands print, text and JSON of 22.05 to 26.05, as records in one set of units.

=====================  ==================================================  =====================
function               reads                                               into
=====================  ==================================================  =====================
``sacct.read``         ``sacct -P``, ``sstat -P``                          ``SacctRow``
``sacct_json``         ``sacct --json``, slurmrestd's ``slurmdb``          ``SacctRow``
``squeue.read``        ``squeue -o``, ``squeue -O``                        ``LiveJob``
``squeue_json``        ``squeue --json``, ``scontrol show job --json``     ``LiveJob``
``scontrol``           ``scontrol show job|node|partition``                all of them
``sinfo.read``         ``sinfo``                                           ``Cluster``
``sinfo_json``         ``sinfo --json``, slurmrestd's nodes, partitions    ``Cluster``
=====================  ==================================================  =====================

What fits nothing is handed back as ``RejectedRecord``, and the rest goes on.
"""

from ccpipe.formats.slurm.cluster import Cluster
from ccpipe.formats.slurm.job_id import PendingTasks, SlurmId, pending_tasks
from ccpipe.formats.slurm.json.sacct import read_json as read_sacct_json
from ccpipe.formats.slurm.json.sinfo import read_json as read_sinfo_json
from ccpipe.formats.slurm.json.squeue import read_json as read_squeue_json
from ccpipe.formats.slurm.reading import ParsedOutput, RejectedRecord
from ccpipe.formats.slurm.records import Allocation, LiveJob, Node, Partition
from ccpipe.formats.slurm.resources import Gres, gpu_count, gres, index_list, tres, tres_labels
from ccpipe.formats.slurm.sacct_row import SacctRow
from ccpipe.formats.slurm.text import scontrol
from ccpipe.formats.slurm.text.sacct import SacctReader
from ccpipe.formats.slurm.text.sacct import read as read_sacct
from ccpipe.formats.slurm.text.sinfo import read as read_sinfo
from ccpipe.formats.slurm.text.squeue import SqueueReader
from ccpipe.formats.slurm.text.squeue import read as read_squeue

__all__ = [
    "Allocation",
    "Cluster",
    "Gres",
    "LiveJob",
    "Node",
    "ParsedOutput",
    "Partition",
    "PendingTasks",
    "RejectedRecord",
    "SacctReader",
    "SacctRow",
    "SlurmId",
    "SqueueReader",
    "gpu_count",
    "gres",
    "index_list",
    "pending_tasks",
    "read_sacct",
    "read_sacct_json",
    "read_sinfo",
    "read_sinfo_json",
    "read_squeue",
    "read_squeue_json",
    "scontrol",
    "tres",
    "tres_labels",
]
