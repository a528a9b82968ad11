"""The controls that ``ccpipe publish`` provides."""

import json
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ccpipe.config import Interval, Site, mask, plain, to_struct, with_unit
from ccpipe.errors import DataError, UnavailableError
from ccpipe.node.controls.control import Control, ControlChange, Tags
from ccpipe.node.controls.cpu_freq import CpuFreq
from ccpipe.node.controls.nvml import NvmlLimits
from ccpipe.node.controls.prefetchers import Prefetchers
from ccpipe.node.controls.rapl_limits import RaplLimits
from ccpipe.node.controls.uncore_freq import UncoreFreq
from ccpipe.node.linux.topology import hwthread_topology

if TYPE_CHECKING:
    from ccpipe.formats.sonar import Envelope

MIN_INTERVAL, MAX_INTERVAL = Interval(0.1), Interval(86400)
"""Bounds of values set over the bus; a configuration may exceed them."""


def controls(
    *,
    site: Callable[[], Site],
    collectors: Callable[[], Mapping[str, Any]],
    sysinfo: Callable[[], "Iterable[Envelope]"],
    set_interval: Callable[[float], Awaitable[None]],
    root: str = "/",
) -> dict[str, Control]:
    """Return what may be read and set, by name; ``docs/node/control.md`` describes each.

    `sysinfo` is called in a thread, `set_interval` awaited in the loop.
    """

    async def put_interval(value: str, tags: Tags) -> ControlChange:  # noqa: ARG001 - of the node
        wanted = to_struct(value, Interval, "interval")
        if not MIN_INTERVAL <= wanted <= MAX_INTERVAL:
            low, high = with_unit(MIN_INTERVAL), with_unit(MAX_INTERVAL)
            raise DataError(f"interval {value:.40} is not between {low} and {high}")
        before = site().publish.interval
        await set_interval(wanted)
        return ControlChange(str(with_unit(before)), str(with_unit(wanted)))

    return {
        "topology": Control("processors, memory and GPUs", lambda _: _topology(sysinfo(), root)),
        "config": Control("configuration in force, without secrets", lambda _: _config(site())),
        "collectors": Control(
            "collectors and their states", lambda _: json.dumps(dict(collectors()))
        ),
        "interval": Control(
            "time between two samples",
            lambda _: str(with_unit(site().publish.interval)),
            put_interval,
        ),
        **RaplLimits(root=root).controls(),
        **CpuFreq(root=root).controls(),
        **UncoreFreq(root=root).controls(),
        **Prefetchers(root=root).controls(),
        **NvmlLimits(root=root).controls(),
    }


def _topology(envelopes: "Iterable[Envelope]", root: str) -> str:
    """Return the payload of the event ``topology``, with cc-node-controller's keys added."""
    from ccpipe.formats.sonar import SysinfoAttributes
    from ccpipe.translate.sonar.topology import topology_payload  # rarely needed

    errors = []
    for envelope in envelopes:
        if envelope.data is not None and isinstance(envelope.data.attributes, SysinfoAttributes):
            reported = json.loads(topology_payload(envelope.data.attributes))
            return json.dumps({**reported, **hwthread_topology(root)})
        errors += [error.detail for error in envelope.errors]
    raise UnavailableError("; ".join(errors) or "no description of this node is available")


def _config(site: Site) -> str:
    """Return the configuration; secrets are in files, but a URL may contain a password."""
    return json.dumps(mask(plain(site)))
