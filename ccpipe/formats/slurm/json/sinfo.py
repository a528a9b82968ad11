"""The JSON of sinfo, of ``scontrol show node|partition`` and of slurmrestd: nodes, partitions.

In 22.05 sinfo writes each node; from 23.02 on groups of nodes of one partition, which may differ
in what sinfo was not asked for: what the JSON says of features, load and free memory is then that
of one of them, and is left out here.
"""

from typing import Any

from ccpipe.errors import DataError
from ccpipe.formats.slurm.cluster import Cluster, ClusterBuilder
from ccpipe.formats.slurm.json.document import JsonObject, read_lists
from ccpipe.formats.slurm.reading import ParsedOutput
from ccpipe.formats.slurm.records import Node, Partition

_Group = tuple[list[Node], Partition | None]


def read_json(payload: bytes) -> Cluster:
    """Read the nodes and partitions of a document.

    Raises
    ------
    DataError
        if the bytes are no such document; it says what Slurm reports instead, if it does.

    """
    reading: ParsedOutput[_Group] = read_lists(
        payload,
        {
            "nodes": lambda item: [([_node(item)], None)],
            "sinfo": lambda item: [_group(item)],
            "partitions": lambda item: [([], _partition(item))],
        },
    )
    builder = ClusterBuilder()
    for nodes, partition in reading.records:
        builder.add(nodes, partition)
    return builder.build(reading.rejected)


def _node(item: JsonObject) -> Node:
    name = item.text("name")
    if name is None:
        raise DataError("a node without a name")
    load = item.amount("cpu_load")
    return Node(
        name=name,
        states=(*item.states("state"), *item.states("state_flags")),
        partitions=item.words("partitions"),
        hostname=item.text("hostname"),
        address=item.text("address"),
        reason=item.text("reason"),
        reason_user=item.text("reason_set_by_user"),
        reason_time=item.time("reason_changed_at"),
        cpus=item.whole("cpus"),
        alloc_cpus=item.whole("alloc_cpus"),
        cpu_load=None if load is None else load / 100,
        boards=item.whole("boards"),
        sockets=item.whole("sockets"),
        cores_per_socket=item.whole("cores"),
        threads_per_core=item.whole("threads"),
        memory=item.megabytes("real_memory"),
        alloc_memory=item.megabytes("alloc_memory"),
        free_memory=_either(item.megabytes("free_mem"), item.megabytes("free_memory")),
        tmp_disk=item.megabytes("temporary_disk"),
        weight=item.whole("weight"),
        features=item.words("features"),
        active_features=item.words("active_features"),
        gres=item.text("gres"),
        gres_used=item.text("gres_used"),
        tres=item.text("tres"),
        alloc_tres=item.text("tres_used"),
        architecture=item.text("architecture"),
        operating_system=item.text("operating_system"),
        version=_either(item.text("version"), item.text("slurmd_version")),
        comment=item.text("comment"),
        boot_time=item.time("boot_time"),
        slurmd_start_time=item.time("slurmd_start_time"),
        last_busy=item.time("last_busy"),
    )


def _either(first: Any, second: Any) -> Any:
    return second if first is None else first


def _group(item: JsonObject) -> _Group:
    names = item.texts("nodes", "nodes")
    partition = _partition(JsonObject(item.get("partition") or {}))
    known: dict[str, Any] = {
        "states": item.states("node", "state"),
        "partitions": (partition.name,),
        "reason": item.text("reason", "description"),
        "reason_user": item.text("reason", "user"),
        "reason_time": item.time("reason", "time"),
        "cpus": _same(item, "cpus"),
        "sockets": _same(item, "sockets"),
        "cores_per_socket": _same(item, "cores"),
        "threads_per_core": _same(item, "threads"),
        "memory": _megabytes(_same(item, "memory")),
        "tmp_disk": _megabytes(_same(item, "disk")),
        "weight": _same(item, "weight"),
    }
    if len(names) == 1:
        load = item.amount("cpus", "load", "maximum")
        known |= {
            "alloc_cpus": item.whole("cpus", "allocated"),
            "cpu_load": None if load is None else load / 100,
            "alloc_memory": item.megabytes("memory", "allocated"),
            "free_memory": item.megabytes("memory", "free", "maximum"),
            "features": item.words("features", "total"),
            "active_features": item.words("features", "active"),
            "gres": item.text("gres", "total"),
            "gres_used": item.text("gres", "used"),
        }
    return [Node(name=name, **known) for name in names], partition


def _same(item: JsonObject, what: str) -> int | None:
    """Return a number that all nodes of a group share."""
    minimum = item.whole(what, "minimum")
    return minimum if minimum == item.whole(what, "maximum") else None


def _megabytes(number: int | None) -> int | None:
    return None if number is None else number * 2**20


def _partition(item: JsonObject) -> Partition:
    name = item.text("name")
    if name is None:
        raise DataError("a partition without a name")
    if isinstance(item.get("nodes"), dict):
        return _nested_partition(name, item)
    return Partition(
        name=name,
        node_list=item.text("nodes"),
        state=item.text("state"),
        is_default="DEFAULT" in item.states("flags"),
        total_nodes=item.whole("total_nodes"),
        total_cpus=item.whole("total_cpus"),
        max_time=item.minutes("max_time_limit"),
        default_time=item.minutes("default_time_limit"),
        max_nodes=item.amount("maximum_nodes_per_job"),
        min_nodes=item.whole("min nodes per job"),
        priority_tier=item.whole("priority_tier"),
        priority_job_factor=item.whole("priority_job_factor"),
        qos=item.text("qos"),
        tres=item.text("tres"),
        allow_accounts=item.text("allowed_accounts"),
        allow_groups=item.text("allowed_groups"),
        allow_qos=item.text("allowed_qos"),
    )


def _nested_partition(name: str, item: JsonObject) -> Partition:
    """Read a partition as 23.02 and later write it; they do not say which is the default."""
    return Partition(
        name=name,
        node_list=item.text("nodes", "configured"),
        state=next(iter(item.states("partition", "state")), None),
        total_nodes=item.whole("nodes", "total"),
        total_cpus=item.whole("cpus", "total"),
        max_time=item.minutes("maximums", "time"),
        default_time=item.minutes("defaults", "time"),
        max_nodes=item.amount("maximums", "nodes"),
        min_nodes=item.whole("minimums", "nodes"),
        priority_tier=item.whole("priority", "tier"),
        priority_job_factor=item.whole("priority", "job_factor"),
        qos=item.text("qos", "assigned"),
        tres=item.text("tres", "configured"),
        allow_accounts=item.text("accounts", "allowed"),
        allow_groups=item.text("groups", "allowed"),
        allow_qos=item.text("qos", "allowed"),
    )
