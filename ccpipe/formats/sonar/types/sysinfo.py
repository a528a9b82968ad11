"""The description of a node: hardware, topology, devices.

Source: Sonar JSON format output specification, the types of the same names.
"""

from ccpipe.formats.sonar.types.primitives import (
    Hostname,
    NonemptyString,
    NonzeroUint,
    Record,
    Timestamp,
    Uint64,
)


class SysinfoGpuCard(Record, frozen=True):
    """Per-card information.

    NOTE: Many of the string values are idiosyncratic or have card-specific formats, and some are
    not available on all cards.

    NOTE: Only the UUID, manufacturer, model and architecture are required to be stable over time
    (in practice, memory might be stable too).

    NOTE: Though the power limit can change, it is reported here (as well as in sample data)
    because it usually does not.
    """

    index: Uint64 = 0
    """Local card index, may change at boot."""
    uuid: str = ""
    """UUID as reported by card. See notes in preamble."""
    address: str = ""
    """Indicates an intra-system card address, eg PCI address."""
    manufacturer: str = ""
    """A keyword, "NVIDIA", "AMD", "Intel" (others TBD)"""
    model: str = ""
    """Card-dependent, this is the manufacturer's model string."""
    architecture: str = ""
    """Card-dependent, for NVIDIA this is "Turing", "Volta" etc."""
    driver: str = ""
    """Card-dependent, the manufacturer's driver string."""
    firmware: str = ""
    """Card-dependent, the manufacturer's firmware string."""
    memory: Uint64 = 0
    """GPU memory in kilobytes."""
    power_limit: Uint64 = 0
    """Power limit in watts."""
    max_power_limit: Uint64 = 0
    """Max power limit in watts."""
    min_power_limit: Uint64 = 0
    """Min power limit in watts."""
    max_ce_clock: Uint64 = 0
    """Max clock of compute element."""
    max_memory_clock: Uint64 = 0
    """Max clock of GPU memory."""


class SysinfoAttributes(Record, frozen=True):
    """This object describes a node, its CPUS, devices, topology and software.

    For the time being, we assume all cores on a node are the same. This is complicated by eg
    BIG.little systems (performance cores vs efficiency cores), for one thing, but that's OK.

    NOTE: The node may or may not be under control of Slurm or some other batch system. However,
    that information is not recorded with the node information, but with the node sample data, as
    the node can be added to or removed from a Slurm partition at any time.

    NOTE: The number of physical cores is sockets * cores_per_socket.

    NOTE: The number of logical cores is sockets * cores_per_socket * threads_per_core.
    """

    time: Timestamp = ""
    """Time the current data were obtained."""
    cluster: Hostname = ""
    """The canonical cluster name."""
    node: Hostname = ""
    """The name of the host as it is known to itself."""
    os_name: NonemptyString = ""
    """Operating system name (the `sysname` field of `struct utsname`)"""
    os_release: NonemptyString = ""
    """Operating system version (the `release` field of `struct utsname`)"""
    architecture: NonemptyString = ""
    """Architecture name (the `machine` field of `struct utsname`)"""
    sockets: NonzeroUint = 0
    """Number of CPU sockets."""
    cores_per_socket: NonzeroUint = 0
    """Number of physical cores per socket."""
    threads_per_core: NonzeroUint = 0
    """Number of hyperthreads per physical core."""
    cpu_model: str = ""
    """Manufacturer's model name."""
    memory: NonzeroUint = 0
    """Primary memory in kilobytes."""
    topo_svg: str = ""
    """Base64-encoded text output (SVG source text) of `lstopo` or similar."""
    topo_text: str = ""
    """Base64-encoded text output (human-readable) of `hwloc-ls` or similar."""
    cards: tuple[SysinfoGpuCard, ...] = ()
    """Per-card information."""
    distances: tuple[tuple[Uint64, ...], ...] = ()
    """Square matrix of standard NUMA node-to-node distances (normalized to 10 for self distance)

    Empty where it is unknown.
    """
    numa_nodes: Uint64 = 0
    """Number of NUMA nodes; zero where it is unknown.

    Added after the specification, in Sonar 0.16.1.
    """
