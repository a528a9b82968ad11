"""The four envelopes, which are the top-level objects, and what they share.

Source: Sonar JSON format output specification, the types of the same names.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

from ccpipe.formats.sonar.types.cluster import ClusterAttributes
from ccpipe.formats.sonar.types.job import JobsAttributes
from ccpipe.formats.sonar.types.meta import ErrorObject, MetadataObject
from ccpipe.formats.sonar.types.primitives import Record
from ccpipe.formats.sonar.types.sample import SampleAttributes
from ccpipe.formats.sonar.types.sysinfo import SysinfoAttributes


class SysinfoData(Record, frozen=True, tag_field="type", tag="sysinfo"):
    """System data, for successful sysinfo probes."""

    type: ClassVar[str] = "sysinfo"
    """Data tag: The value "sysinfo"."""
    attributes: SysinfoAttributes = SysinfoAttributes()
    """The node data themselves."""


class SampleData(Record, frozen=True, tag_field="type", tag="sample"):
    """Sample data, for successful sample probes."""

    type: ClassVar[str] = "sample"
    """Data tag: The value "sample"."""
    attributes: SampleAttributes = SampleAttributes()
    """The sample data themselves."""


class JobsData(Record, frozen=True, tag_field="type", tag="job"):
    """Jobs data, for successful jobs probes."""

    type: ClassVar[str] = "job"
    """Data tag: The value "jobs" in the specification; all real programs write "job" instead.

    Both are read; the profile selects the one to write.
    """
    attributes: JobsAttributes = JobsAttributes()
    """The jobs data themselves."""


class ClusterData(Record, frozen=True, tag_field="type", tag="cluster"):
    """Cluster data, for successful cluster probes."""

    type: ClassVar[str] = "cluster"
    """Data tag: The value "cluster"."""
    attributes: ClusterAttributes = ClusterAttributes()
    """The cluster data themselves."""


Data = SysinfoData | SampleData | JobsData | ClusterData

Path = tuple[str | int, ...]
"""Keys and indices from the envelope down to a value."""


class Envelope(Record, frozen=True):
    """A top-level object: data or errors, never both.

    An envelope of errors does not have one of the four types: it is decoded as this class.
    Envelopes of data have one of the classes below.
    """

    meta: MetadataObject = MetadataObject()
    """Information about the producer and data format."""
    data: Data | None = None
    """Data, for successful probes."""
    errors: tuple[ErrorObject, ...] = ()
    """Error information, for unsuccessful probes."""
    unknown: Mapping[Path, Any] = {}
    """Unknown fields by their paths: a tolerant decoder keeps them.

    This is not a field of the specification.
    """


class SysinfoEnvelope(Envelope, frozen=True):
    """The Sysinfo object carries hardware information about a node.

    NOTE: "Nodeinfo" would have been a better name but by now "Sysinfo" is baked into everything.

    NOTE: Also see notes about envelope objects in the preamble.

    NOTE: These are extracted from the node periodically, currently with Sonar we extract
    information every 24h and on node boot.

    NOTE: In the Go code, the JSON representation can be read with ConsumeJSONSysinfo().
    """

    data: SysinfoData | None = None
    """Node data, for successful probes."""


class SampleEnvelope(Envelope, frozen=True):
    """The "sample" record is sent from each node at each sampling interval.

    It has the form of a top-level sample object.

    NOTE: Also see notes about envelope objects in the preamble.

    NOTE: JSON representation can be read with ConsumeJSONSamples().
    """

    data: SampleData | None = None
    """Sample data, for successful probes."""


class JobsEnvelope(Envelope, frozen=True):
    """Jobs under the control of a central jobs manager.

    Jobs data are extracted from a single always-up master node on the cluster, and describe jobs
    under the control of a central jobs manager.

    NOTE: A stateful client can filter the data effectively. Minimally it can filter against an
    in-memory database of job records and the state or fields that have been sent. The backend must
    still be prepared to deal with redundant data as the client might crash and be resurrected, but
    we can still keep data volume down.

    JSON representation can be read with ConsumeJSONJobs().
    """

    data: JobsData | None = None
    """Jobs data, for successful probes."""


class ClusterEnvelope(Envelope, frozen=True):
    """The cluster as a whole, as its management knows it.

    On clusters that have centralized cluster management (eg Slurm), the Cluster data reveal
    information about the cluster as a whole that are not derivable from data about individual
    nodes or jobs.

    JSON representation can be read with ConsumeJSONCluster().
    """

    data: ClusterData | None = None
    """Node data, for successful probes."""


ENVELOPES: dict[type[Data], type[Envelope]] = {
    SysinfoData: SysinfoEnvelope,
    SampleData: SampleEnvelope,
    JobsData: JobsEnvelope,
    ClusterData: ClusterEnvelope,
}
"""The envelope of each kind of data."""
