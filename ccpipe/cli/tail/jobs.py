"""The nodes of jobs, from their start: ClusterCockpit's events or Sonar's envelopes."""

from collections.abc import Collection, Mapping
from typing import Any

import msgspec

from ccpipe.errors import DataError
from ccpipe.formats.nodelist import expand
from ccpipe.message import Message


class _Resource(msgspec.Struct):
    hostname: str = ""


class _Start(msgspec.Struct):
    job: int = msgspec.field(name="jobId")
    resources: list[_Resource] = []


class JobNodes:
    """Tracks the nodes of some jobs."""

    def __init__(self, jobs: Collection[int]) -> None:
        """Watch for these jobs."""
        self.jobs = frozenset(jobs)
        self.nodes: set[str] = set()

    def add_event(self, event: Message) -> bool:
        """Process an event; return whether it is about one of the jobs."""
        if event.name != "job":
            return False
        try:
            start = msgspec.json.decode(str(event.value), type=_Start)
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            return False
        if start.job not in self.jobs:
            return False
        self.nodes.update(resource.hostname for resource in start.resources if resource.hostname)
        return True

    def add_attributes(self, attributes: Mapping[str, Any]) -> bool:
        """Process an envelope's attributes; return whether it is about one of the jobs."""
        is_about = False
        for kind in ("slurm_jobs", "jobs"):
            records = attributes.get(kind)
            for record in records if isinstance(records, list) else ():
                if not isinstance(record, dict) or not self._is_watched(record):
                    continue
                is_about = True
                nodes = record.get("nodes")
                for text in nodes if isinstance(nodes, list) else [attributes.get("node")]:
                    self._add_list(text)
        return is_about

    def _is_watched(self, record: Mapping[str, Any]) -> bool:
        job = record.get("job_id", record.get("job"))
        return isinstance(job, int) and job in self.jobs

    def _add_list(self, text: object) -> None:
        try:
            self.nodes.update(expand(str(text)) if text else ())
        except DataError:
            return
