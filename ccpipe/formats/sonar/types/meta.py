"""Common parts of all envelopes: producer and errors.

Source: Sonar JSON format output specification, the types of the same names.
"""

from ccpipe.formats.sonar.types.primitives import (
    Hostname,
    NonemptyString,
    Record,
    Timestamp,
    Uint64,
)


class KVPair(Record, frozen=True):
    """Carrier of arbitrary attribute data."""

    key: NonemptyString = ""
    """A unique key within the array for the attribute."""
    value: str = ""
    """Some attribute value."""


class MetadataObject(Record, frozen=True):
    """Information about the data producer and the data format.

    After the data have been ingested, the metadata can be thrown away and will not affect the data
    contents.

    NOTE: The `attrs` field can be used to transmit information about how the data were collected.
    For example, sometimes Sonar is run with switches that exclude system jobs and short-running
    jobs, and the data could record this. For some agents, it may be desirable to report on eg
    Python version (slurm-monitor does this).
    """

    producer: NonemptyString = ""
    """The name of the component that generated the data (eg "sonar", "slurm-monitor")"""
    version: NonemptyString = ""
    """The semver of the producer."""
    format: Uint64 = 0
    """The data format version."""
    attrs: tuple[KVPair, ...] = ()
    """An array of generator-dependent attribute values."""
    token: str = ""
    """EXPERIMENTAL / UNDERSPECIFIED. An API token to be used with
    Envelope.Data.Attributes.Cluster, it proves that the producer of the datum was authorized to
    produce data for that cluster name.
    """


class ErrorObject(Record, frozen=True):
    """Information about a continuable or non-continuable error."""

    time: Timestamp = ""
    """Time when the error was generated."""
    detail: NonemptyString = ""
    """A sensible English-language error message describing the error."""
    cluster: Hostname = ""
    """Canonical cluster name for node generating the error."""
    node: Hostname = ""
    """name of node generating the error."""
