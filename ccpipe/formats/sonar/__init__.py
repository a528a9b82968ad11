"""Sonar's JSON: ``decode`` bytes to envelopes, ``encode`` envelopes to bytes.

>>> payload = b'{"meta":{"producer":"sonar","version":"0.19.0"},"data":{"type":"sample",\
"attributes":{"time":"2025-02-20T06:05:51+01:00","cluster":"fox","node":"c1-6",\
"jobs":[{"job":1,"user":"ann","processes":[{"cmd":"awk","pid":7}]}]}}}'
>>> decode(payload)[0].data.attributes.jobs[0].processes[0].cmd
'awk'

Source: Sonar JSON format output specification (0.16), and the additions of Sonar 0.19. Types have
the specification's names and texts; ``docs/sonar/format.md`` is generated from them.
"""

from ccpipe.formats.sonar.encoder import encode
from ccpipe.formats.sonar.envelopes import Envelopes, RejectedEnvelope
from ccpipe.formats.sonar.profiles import ReadProfile, WriteProfile
from ccpipe.formats.sonar.rules import Problem, problems
from ccpipe.formats.sonar.stream import Decoder, decode
from ccpipe.formats.sonar.sums import roll_up
from ccpipe.formats.sonar.types import timestamp
from ccpipe.formats.sonar.types.cluster import ClusterAttributes, ClusterNodes, ClusterPartition
from ccpipe.formats.sonar.types.envelope import (
    ClusterData,
    ClusterEnvelope,
    Envelope,
    JobsData,
    JobsEnvelope,
    SampleData,
    SampleEnvelope,
    SysinfoData,
    SysinfoEnvelope,
)
from ccpipe.formats.sonar.types.job import JobsAttributes, SacctData, SlurmJob
from ccpipe.formats.sonar.types.meta import ErrorObject, KVPair, MetadataObject
from ccpipe.formats.sonar.types.primitives import INFINITE, UNSET, ExtendedUint
from ccpipe.formats.sonar.types.sample import (
    EPOCH_ZERO,
    SampleAttributes,
    SampleDisk,
    SampleGpu,
    SampleJob,
    SampleProcess,
    SampleProcessGpu,
    SampleSystem,
)
from ccpipe.formats.sonar.types.sysinfo import SysinfoAttributes, SysinfoGpuCard

__all__ = [
    "EPOCH_ZERO",
    "INFINITE",
    "UNSET",
    "ClusterAttributes",
    "ClusterData",
    "ClusterEnvelope",
    "ClusterNodes",
    "ClusterPartition",
    "Decoder",
    "Envelope",
    "Envelopes",
    "ErrorObject",
    "ExtendedUint",
    "JobsAttributes",
    "JobsData",
    "JobsEnvelope",
    "KVPair",
    "MetadataObject",
    "Problem",
    "ReadProfile",
    "RejectedEnvelope",
    "SacctData",
    "SampleAttributes",
    "SampleData",
    "SampleDisk",
    "SampleEnvelope",
    "SampleGpu",
    "SampleJob",
    "SampleProcess",
    "SampleProcessGpu",
    "SampleSystem",
    "SlurmJob",
    "SysinfoAttributes",
    "SysinfoData",
    "SysinfoEnvelope",
    "SysinfoGpuCard",
    "WriteProfile",
    "decode",
    "encode",
    "problems",
    "roll_up",
    "timestamp",
]
