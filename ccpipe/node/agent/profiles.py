"""Named profiles of the publisher: settings for one reader that a site enables with one key."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from ccpipe.config import Site

AVERAGED = (
    "temperature",
    "max_temperature",
    "crit_temperature",
    "ipmi_temperature",
    "ipmi_fan",
    "ipmi_voltage",
    "ipmi_percent",
    "smartmon_temp",
    "smartmon_percent_used",
    "smartmon_avail_spare",
)
"""Metrics of sensors and disks that cannot be summed."""

DISKS = (
    "sd[a-z]", "sd[a-z][a-z]", "vd[a-z]", "xvd[a-z]", "hd[a-z]", "dasd[a-z]", "dasd[a-z][a-z]",
    "nvme*n[0-9]", "nvme*n[0-9][0-9]", "mmcblk[0-9]",
)  # fmt: skip
"""Whole disks: the activity of partitions and volumes would count twice."""

VIRTUAL_INTERFACES = (
    "lo", "bond*", "team*", "br[0-9]*", "br-*", "virbr*", "docker*", "podman*", "veth*", "cni*",
    "cali*", "flannel*", "vnet*", "tap*", "tun*", "dummy*", "*.*",
)  # fmt: skip
"""Interfaces whose traffic is counted on others already, or stays on the node."""

_DEVICES = {"type": "node", "stype": "*"}


@dataclass(frozen=True, kw_only=True)
class PublisherProfile:
    """Settings of a profile, unless the site sets them."""

    precision: Literal["auto", "s", "ms", "us", "ns"]
    collectors: Mapping[str, Mapping[str, Any]]
    translate: Sequence[Mapping[str, Any]]  # rules applied after those of the site


# cc-metric-store keys metrics of a node by name and host alone: series that differ in stype only
# would overwrite each other. bridges/clustercockpit.toml has the same rules.
CLUSTERCOCKPIT = PublisherProfile(
    precision="s",
    collectors={
        "disk": {"include": list(DISKS)},
        "network": {"exclude": list(VIRTUAL_INTERFACES)},
        "slurm_cgroup": {"hwthreads": True},
    },
    translate=(
        {"use": "select", "numeric": True},
        {"use": "drop", "tags": {"type": "node", "stype": "job"}},
        {
            "use": "aggregate", "function": "mean", "of": "stype",
            "names": list(AVERAGED), "tags": _DEVICES,
        },
        {"use": "drop", "names": list(AVERAGED), "tags": _DEVICES},
        {"use": "aggregate", "function": "sum", "of": "stype", "tags": _DEVICES},
        {"use": "drop", "tags": _DEVICES},
    ),
)  # fmt: skip

PROFILES = {"clustercockpit": CLUSTERCOCKPIT}


def with_profile(site: Site) -> Site:
    """Return a site's configuration with what its profile sets; the site's own options win."""
    publish = site.publish
    profile = PROFILES.get(publish.profile)
    if profile is None:
        return site
    own = publish.collectors
    publish = msgspec.structs.replace(
        publish,
        precision=profile.precision if publish.precision == "auto" else publish.precision,
        collectors={
            **own,
            **{name: {**table, **own.get(name, {})} for name, table in profile.collectors.items()},
        },
        translate=[*publish.translate, *(dict(table) for table in profile.translate)],
    )
    return msgspec.structs.replace(site, publish=publish)
