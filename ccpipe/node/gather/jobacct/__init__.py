"""Slurm's job accounting gather API: usage of tasks, polled, aggregated and shown as by sacct.

========================================== ==========================================
call of the document                       here
========================================== ==========================================
create, destroy                            ``create``, ``destroy``
setinfo, getinfo                           ``set_info``, ``get_info``, one ``DataType`` each
pack, unpack                               ``pack``, ``unpack``
aggregate, 2_sacct                         ``aggregate``, ``to_sacct``
startpoll, endpoll                         ``TaskPoller.start_poll``, ``end_poll``
suspend_poll, resume_poll                  the same of ``TaskPoller``
set_proctrack_container_id                 the same of ``TaskPoller``
add_task, stat_task, remove_task           the same of ``TaskPoller``
========================================== ==========================================

Where the document returns SLURM_ERROR, ``JobacctError`` is raised; where it returns NULL, None is
returned.

>>> import os
>>> from ccpipe.node.gather.jobacct import TaskId, TaskPoller, aggregate, create, to_sacct
>>> poller = TaskPoller()
>>> poller.set_proctrack_container_id(os.getpid())
>>> poller.start_poll(0)
>>> poller.add_task(os.getpid(), TaskId(task=0, node=0))
>>> step = create()
>>> aggregate(step, poller.remove_task(os.getpid()))
>>> poller.end_poll()
>>> to_sacct(step, nodes=["n1"])["MaxRSSNode"]
'n1'

Source: Slurm Job Accounting Gather Plugin API, version 1; current Slurm where that document is
silent.
"""

from ccpipe.node.gather.jobacct.poller import TaskPoller
from ccpipe.node.gather.jobacct.record import (
    DataType,
    JobacctError,
    JobacctInfo,
    Rusage,
    TaskId,
    Usage,
    aggregate,
    create,
    destroy,
    get_info,
    pack,
    set_info,
    unpack,
)
from ccpipe.node.gather.jobacct.sacct import to_sacct

__all__ = [
    "DataType",
    "JobacctError",
    "JobacctInfo",
    "Rusage",
    "TaskId",
    "TaskPoller",
    "Usage",
    "aggregate",
    "create",
    "destroy",
    "get_info",
    "pack",
    "set_info",
    "to_sacct",
    "unpack",
]
