"""The columns of a job's page from live values: of its nodes, and of its own parts of them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from ccpipe.jobs import Job, JobNode
from ccpipe.live.node import LiveNode
from ccpipe.live.nodes import NAN
from ccpipe.node.sampling.collector import Metric


def is_averaged(metric: str, known: Mapping[str, Metric]) -> bool:
    row = known.get(metric)
    return row is not None and row.is_averaged


class JobColumns:
    """For each metric a column for each node, or minimum, mean and maximum of all nodes.

    A job that shares its nodes has, where a metric is measured for each hardware thread or
    accelerator, the sum or mean of its own.
    """

    def __init__(
        self,
        job: Job,
        nodes: Sequence[LiveNode],
        metrics: Sequence[str],
        known: Mapping[str, Metric],
        *,
        has_lines: bool,
    ) -> None:
        """Find the slots of the values of nodes that the job has."""
        of_job = {node.hostname: node for node in job.nodes}
        self.count = len(nodes)
        self.has_lines = has_lines
        self._groups: list[tuple[int, bool]] = []  # number of slots, and if they are averaged
        self.slots: list[int] = []
        self.of_whole_node: list[str] = []
        """Metrics whose values include those of other jobs."""
        for metric in metrics:
            is_mean = is_averaged(metric, known)
            has_own = True
            for node in nodes:
                own = _own_slots(of_job[node.id[1]], node, metric)
                has_own = has_own and bool(own)
                slots = own or [node.cells.get(metric, 0)]
                self.slots += slots
                self._groups.append((len(slots), is_mean))
            if job.shares_nodes and not (has_own or is_mean):
                self.of_whole_node.append(metric)

    def reduce(self, row: Sequence[float]) -> list[float]:
        """Return the columns' values of the slots' values."""
        values = row if len(row) == len(self._groups) else list(self._nodes(row))
        return list(values if self.has_lines else _extremes(values, self.count))

    def _nodes(self, row: Sequence[float]) -> Iterator[float]:
        place = 0
        for size, is_mean in self._groups:
            yield _combined(row[place : place + size], is_mean=is_mean)
            place += size


def _own_slots(of_job: JobNode, node: LiveNode, metric: str) -> list[int]:
    parts = node.parts.get(metric, {})
    names = [f"hwthread {number}" for number in of_job.hwthreads]
    names += [f"accelerator {name}" for name in of_job.accelerators]
    return [parts[name] for name in names if name in parts]


def _combined(values: Sequence[float], *, is_mean: bool) -> float:
    if len(values) == 1:
        return values[0]
    there = list(_present(values))
    if not there:
        return NAN
    return sum(there) / len(there) if is_mean else sum(there)


def _extremes(values: Sequence[float], count: int) -> Iterator[float]:
    for start in range(0, len(values), count):
        there = list(_present(values[start : start + count]))
        yield from ((min(there), sum(there) / len(there), max(there)) if there else (NAN, NAN, NAN))


def _present(values: Iterable[float]) -> Iterator[float]:
    return (value for value in values if value == value)  # noqa: PLR0124 - not NaN
