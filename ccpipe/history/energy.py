"""The energy of a job: the integral of the power of its nodes from its start to its end."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

import msgspec

from ccpipe.history.interfaces import History, MetricCurves, MetricQuery
from ccpipe.history.job_metrics import JobMetrics
from ccpipe.node.sampling.collector import power_metrics


class Energy(msgspec.Struct, frozen=True):
    """Energy of a job, from the power metrics of its nodes."""

    joules: float
    seconds: float
    """Time of which the power of a node is known; the rest adds nothing."""
    metrics: list[str]
    """The power metrics that were added."""
    nodes: int
    """Number of nodes on which the job's power is known; the energy is theirs."""


class SharedPower(NamedTuple):
    """The power of some nodes, combined, and the job's share of it."""

    share: float
    curves: MetricCurves


async def fetch_power(history: History, usage: JobMetrics, query: MetricQuery) -> list[SharedPower]:
    """Read the power of a job's nodes in the time of a query; raises as the store's methods do.

    `query` restricts accelerators to the job's own.
    """
    groups: dict[tuple[tuple[str, ...], float], list[str]] = defaultdict(list)
    for node, metrics, share in usage.power_shares(power_metrics(usage.metrics)):
        groups[metrics, share].append(node.hostname)
    whole = replace(query, has_parts=False, over_nodes=True, hwthreads={})
    return [
        SharedPower(share, await history.curves(replace(whole, nodes=nodes, metrics=metrics)))
        for (metrics, share), nodes in groups.items()
    ]


def energy_of(
    usage: JobMetrics, found: Iterable[SharedPower], start: float, stop: float
) -> Energy | None:
    """Return the integral of power from start to stop; None if no node's power is known.

    Gaps add nothing.
    """
    import numpy as np

    joules, seconds = 0.0, 0.0
    for share, curves in found:
        begin = np.maximum(curves.times, start)
        widths = np.maximum(np.minimum(curves.times + curves.step, stop) - begin, 0.0)
        is_known = np.zeros(len(curves.times), np.bool_)
        for curve in curves.curves:
            assert curve.counts is not None, "curves over nodes have counts"
            joules += share * float(np.nansum(curve.values * curve.counts * widths))
            is_known |= curve.counts > 0
        seconds = max(seconds, float(widths[is_known].sum()))
    powers = power_metrics(usage.metrics)
    nodes = {node.hostname for node, _, _ in usage.power_shares(powers)}
    return Energy(joules, seconds, powers, len(nodes)) if seconds else None
