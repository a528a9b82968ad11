"""Slurm's jobs and node states as ClusterCockpit's events."""

import functools
from collections.abc import Iterator, Sequence

from ccpipe.config import Duration, Site
from ccpipe.errors import ConfigError, DataError
from ccpipe.formats.clustercockpit import encode_node_reasons
from ccpipe.formats.lineprotocol import Lines, RejectedLine, to_lines
from ccpipe.formats.nodelist import expand
from ccpipe.jobs import Job, Jobs, Lifecycle, Outbox
from ccpipe.jobs import message as job_message
from ccpipe.jobs.pending import QueueReports
from ccpipe.message import Message, event, log
from ccpipe.pipeline import HoldingTranslator, Scope
from ccpipe.pipeline.state import StateStore
from ccpipe.translate.cluster_nodes import NodeNumbers, node_metrics, node_state_payloads
from ccpipe.translate.slurm.jobs import original, with_comment_gpus

MAX_REASON = 255
"""Maximum length of the reason why a node is down; longer ones are cut."""


class SlurmToCc(HoldingTranslator[Jobs, Lines]):
    """Turns jobs of the source ``slurm`` into starts and stops, and its node states into events.

    Each start and each stop is sent once; with a `state_file` also after a restart or SIGKILL.
    """

    takes = Jobs
    gives = Lines
    scope = Scope.CLUSTER

    def __init__(
        self,
        *,
        site: Site,
        gpu_ids: dict[str, list[str]] | None = None,
        comment_gpus: bool = False,
        cluster_json: str = "",
        pending_jobs: bool = True,
        node_metrics: bool = False,
        exclude_nodes: list[str] = [],  # noqa: B006 - only read
        stop_delay: Duration = Duration(2),
        state_file: str = "",
    ) -> None:
        """Take the options.

        Parameters
        ----------
        gpu_ids
            Ids of a node's accelerators, in the order of Slurm's indices, by list of nodes, such
            as ``"gpu-[1-8]"``. Without one, Slurm's index is the id.
        comment_gpus
            Whether the PCI addresses that a job's comment consists of are its accelerators where
            Slurm reports no indices. Users can write comments.
        cluster_json
            cc-backend's file of the cluster. Jobs then have the hardware threads that Linux
            numbers, and the ids of its accelerators, of the nodes in it; Slurm's own numbers of
            others.
        pending_jobs
            Whether jobs that wait are reported by events ``jobpending``.
        node_metrics
            Whether the CPUs, GPUs and memory that are allocated on each node, and its running jobs,
            are also sent as metrics.
        exclude_nodes
            Node lists, such as ``login[1-4]``: nodes without states, and a job that only has such
            nodes is not reported.
        stop_delay
            Time between a start and a stop that are known at different times; see ``Lifecycle``.
        state_file
            A file, on a local disk, that keeps which starts and stops were sent, and which jobs are
            pending. Without it, starts and pending jobs are sent again after a restart.

        Raises
        ------
        ConfigError
            if a list of nodes or the file of the cluster is invalid.

        """
        self.site = site
        self.comment_gpus = comment_gpus
        self.node_metrics = node_metrics
        self._excluded = _expanded(exclude_nodes)
        self._numbers = NodeNumbers.read(gpu_ids, cluster_json)
        self._rejected: list[RejectedLine] = []  # jobs of this feed
        self._state = StateStore(state_file)
        self._jobs = Lifecycle(self._state, delay=round(stop_delay * 10**9))
        self._queue = QueueReports(site.cluster, self._state) if pending_jobs else None
        self._outbox = Outbox(self._state)

    def oldest_held(self) -> int | None:
        """Return the oldest feed of which a stop is held back; see ``HoldingTranslator``."""
        return self._outbox.oldest_held

    def commit(self, feed: int) -> None:
        """Forget what was returned up to a feed: it is stored; see ``HoldingTranslator``."""
        self._outbox.commit(feed)

    def feed(self, records: Jobs) -> Lines:
        self._state.open()
        for job in records:
            if not job.step and not self._is_excluded(job):
                self._add(job, records.time)
        made = list(self._about_cluster(records))
        made += self._outbox.put([*self._job_events(), *self._queue_events(records)])
        rejected, self._rejected = self._rejected, []
        return to_lines(made, rejected)

    def flush(self) -> Lines:
        return to_lines(self._outbox.flush())

    def _is_excluded(self, job: Job) -> bool:
        """Return whether a job has nodes, and all of them are excluded."""
        names = [node.hostname for node in job.nodes]
        return bool(names and self._excluded) and self._excluded.issuperset(names)

    def _add(self, job: Job, time: int) -> None:
        try:
            job = self._numbers.apply(job) if self._numbers else job
            job = with_comment_gpus(job) if self.comment_gpus else job
            self._jobs.add(job, time)
            self._jobs.check_reported(job)
        except DataError as error:
            reason = f"job {job.id}: {error}"
            self._rejected.append(RejectedLine(0, 0, 0, reason, original(job)))

    def _job_events(self) -> Iterator[tuple[Message, int]]:
        """Yield the starts and stops of this feed, and the time before which each is held back.

        They have the poll's time and the cluster's host name, by which ``cc_to_sonar`` recognises
        them.
        """
        for found in self._jobs.take():
            hostname = found.job.cluster
            message = job_message(found.function, found.job, time=found.time, hostname=hostname)
            yield message, found.not_before

    def _queue_events(self, records: Jobs) -> Iterator[tuple[Message, int]]:
        if self._queue is None or records.queue is None:
            return
        state_of = functools.partial(self._jobs.state_of, self.site.cluster)
        for message in self._queue.update(records.queue, records.time, state_of=state_of):
            yield message, 0

    def _about_cluster(self, records: Jobs) -> Iterator[Message]:
        cluster, time = self.site.cluster, records.time
        tags = {"cluster": cluster, "hostname": cluster, "type": "node"}
        if records.cluster is not None:
            nodes = [node for node in records.cluster.nodes if node.name not in self._excluded]
            states = {
                node.name: list(dict.fromkeys(state.lower() for state in node.states))
                for node in nodes
            }
            running = list(self._jobs.running(cluster))
            for payload in node_state_payloads(cluster, states, running):
                yield event("nodestate", "nodestate", payload, time=time, tags=tags)
            if self.node_metrics:
                yield from node_metrics(cluster, states, running, time)
            reasons = {node.name: node.reason[:MAX_REASON] for node in nodes}
            for payload in encode_node_reasons(cluster, reasons):
                yield event("nodereason", "nodereason", payload, time=time, tags=tags)
        tags = {**tags, "hostname": self.site.hostname or cluster}
        for text in records.errors:
            yield log("sonar", "error", text, time=time, tags=tags)


def _expanded(lists: Sequence[str]) -> frozenset[str]:
    try:
        return frozenset(name for each in lists for name in expand(each))
    except DataError as error:
        raise ConfigError(f"exclude_nodes: {error}") from None
