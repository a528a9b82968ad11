"""Sonar's samples as Sonar writes them, made for tests."""

from typing import Any

from ccpipe.formats.sonar import (
    MetadataObject,
    SampleAttributes,
    SampleData,
    SampleEnvelope,
    SampleJob,
    SampleProcess,
    SampleSystem,
    timestamp,
)
from ccpipe.message import Message

START = 1_740_000_000
"""Seconds since the epoch."""
META = MetadataObject(producer="sonar", version="0.19.0")


def at(second: int) -> str:
    return timestamp.write((START + second) * 10**9)


def sample(
    second: int = 0,
    *,
    cluster: str = "fox",
    node: str = "c1",
    jobs: tuple[SampleJob, ...] = (),
    errors: tuple[Any, ...] = (),
    **system: Any,
) -> SampleEnvelope:
    attributes = SampleAttributes(
        time=at(second),
        cluster=cluster,
        node=node,
        system=SampleSystem(**({"load1": 1.5} | system)),
        jobs=jobs,
        errors=errors,
    )
    return SampleEnvelope(META, SampleData(attributes))


def job(*processes: SampleProcess, number: int = 7, epoch: int = 0) -> SampleJob:
    return SampleJob(job=number, user="ann", epoch=epoch, processes=processes)


def values(messages: Any, **tags: str) -> dict[str, Any]:
    wanted = {
        "stype": "",
        "type": "node",
        "type-id": "",
        **{k.replace("_", "-"): v for k, v in tags.items()},
    }

    def fits(message: Message) -> bool:
        return message.field == "value" and all(
            message.tags.get(key, "") == value for key, value in wanted.items()
        )

    return {message.name: message.value for message in messages if fits(message)}
