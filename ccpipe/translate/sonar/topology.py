"""The hardware of a node: Sonar's sysinfo and ClusterCockpit's event ``topology``, both ways."""

import msgspec

from ccpipe.formats.clustercockpit import Accelerator, TopologyEvent
from ccpipe.formats.sonar import SysinfoAttributes, SysinfoGpuCard

_NODE = {
    "cluster": "cluster",
    "node": "hostname",
    "os_name": "osName",
    "os_release": "osRelease",
    "architecture": "architecture",
    "sockets": "socketsPerNode",
    "cores_per_socket": "coresPerSocket",
    "threads_per_core": "threadsPerCore",
    "cpu_model": "processorType",
    "memory": "memory",
    "numa_nodes": "memoryDomains",
}
_GPU = {
    "index": "index",
    "uuid": "id",
    "address": "address",
    "manufacturer": "type",
    "model": "model",
    "architecture": "architecture",
    "driver": "driver",
    "firmware": "firmware",
    "memory": "memory",
    "power_limit": "powerLimit",
    "max_power_limit": "maxPowerLimit",
    "min_power_limit": "minPowerLimit",
    "max_ce_clock": "maxClock",
    "max_memory_clock": "maxMemoryClock",
}
"""Sonar's fields, and the event's keys of the same meaning and unit."""


def topology_payload(node: SysinfoAttributes) -> str:
    gpus = [
        Accelerator(**{key: getattr(gpu, name) for name, key in _GPU.items()}) for gpu in node.cards
    ]
    known = {key: getattr(node, name) for name, key in _NODE.items()}
    return msgspec.json.encode(TopologyEvent(**known, accelerators=gpus)).decode()


def sysinfo(event: TopologyEvent, time: str) -> SysinfoAttributes:
    gpus = tuple(
        SysinfoGpuCard(**{name: getattr(gpu, key) for name, key in _GPU.items()})
        for gpu in event.accelerators
    )
    known = {name: getattr(event, key) for name, key in _NODE.items()}
    return SysinfoAttributes(time=time, **known, cards=gpus)
