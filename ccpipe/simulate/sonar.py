"""Sonar's samples of a simulated node."""

import ccpipe
from ccpipe.formats.sonar import encode, timestamp
from ccpipe.formats.sonar.types.envelope import SampleData, SampleEnvelope
from ccpipe.formats.sonar.types.meta import MetadataObject
from ccpipe.formats.sonar.types.sample import (
    SampleAttributes,
    SampleJob,
    SampleProcess,
    SampleSystem,
)
from ccpipe.jobs import Job
from ccpipe.simulate.jobs import SECOND
from ccpipe.simulate.series import NodeParts

PROCESSES = 4  # number of processes of a job on a node
BOOT_PERIOD = 30 * 86_400  # uptime of all nodes at the start, in seconds

_COMMANDS = ("gromacs", "python3", "vasp_std", "lmp", "cp2k.psmp")


def sample_envelope(
    cluster: str, node: str, now: int, job: Job | None, parts: NodeParts, place: int
) -> bytes:
    """Return the envelope of one sample as JSON, with the processes of the job on the node."""
    seconds = (now - job.start) // SECOND if job else 0
    share = parts.hwthread / PROCESSES
    processes = tuple(
        SampleProcess(
            cmd=_COMMANDS[job.id % len(_COMMANDS)],
            pid=2000 + rank,
            ppid=1999,
            num_threads=round(share) - 1,
            resident_memory=1_000_000 + 1000 * (place % 977),
            virtual_memory=4_000_000,
            cpu_avg=95.0 * share,
            cpu_util=95.0 * share,
            cpu_time=round(0.95 * share * seconds),
            data_read=500 * seconds,
            data_written=100 * seconds,
        )
        for rank in range(PROCESSES)
        if job
    )
    jobs = (SampleJob(job=job.id, user=job.user, processes=processes),) if job else ()
    load = 0.95 * parts.hwthread if job else 0.5
    attributes = SampleAttributes(
        time=timestamp.write(now),
        cluster=cluster,
        node=node,
        system=SampleSystem(
            cpus=(round(0.7 * (now // SECOND % BOOT_PERIOD)),) * parts.hwthread,
            used_memory=sum(each.resident_memory for each in processes) + 2_000_000,
            load1=load,
            load5=load,
            load15=load,
            runnable_entities=round(load),
            existing_entities=round(load) + 300,
        ),
        jobs=jobs,
    )
    meta = MetadataObject(producer="ccpipe", version=ccpipe.__version__)
    return encode(SampleEnvelope(meta=meta, data=SampleData(attributes=attributes)))
