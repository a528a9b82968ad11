"""Samples of tables as metrics."""

from collections.abc import Iterator, Sequence
from typing import Any

from ccpipe.formats.slurm_metrics import to_metrics
from ccpipe.formats.slurm_profile.extract import extract_records
from ccpipe.formats.slurm_profile.table import Table
from ccpipe.message import Message

_KEYS = ("Run", "Step", "Node", "Series", "ElapsedTime", "EpochTime")


def samples(
    tables: Sequence[Table], cluster: str, job: str | None = None
) -> Iterator[list[Message]]:
    """Yield each sample as metrics, tagged as ``ccpipe step --publish`` does.

    `job` is the job of tables whose file does not say it.
    """
    for table in tables:
        step = table.node_step
        for record in extract_records([table]):
            values: dict[str, Any] = {
                name: value for name, value in record.items() if name not in _KEYS
            }
            seconds = record["EpochTime"]
            if not isinstance(seconds, int):
                continue  # a sample without a time
            yield list(
                to_metrics(
                    table.series,
                    values,
                    seconds * 10**9,
                    cluster=cluster,
                    node=step.node,
                    job=job if step.job is None else str(step.job),
                    step=step.step,
                    task=table.task,
                )
            )
