"""Sonar's samples as Sonar writes them, made for tests."""

from typing import Any

from ccpipe.formats import sonar
from ccpipe.message import Message

START = 1_740_000_000
"""Seconds since the epoch."""
META = sonar.MetadataObject(producer="sonar", version="0.19.0")


def at(second: int) -> str:
    return sonar.timestamp.write((START + second) * 10**9)


def sample(
    second: int = 0,
    *,
    cluster: str = "fox",
    node: str = "c1",
    jobs: tuple[sonar.SampleJob, ...] = (),
    errors: tuple[Any, ...] = (),
    **system: Any,
) -> sonar.SampleEnvelope:
    attributes = sonar.SampleAttributes(
        time=at(second),
        cluster=cluster,
        node=node,
        system=sonar.SampleSystem(**({"load1": 1.5} | system)),
        jobs=jobs,
        errors=errors,
    )
    return sonar.SampleEnvelope(META, sonar.SampleData(attributes))


def job(*processes: sonar.SampleProcess, number: int = 7, epoch: int = 0) -> sonar.SampleJob:
    return sonar.SampleJob(job=number, user="ann", epoch=epoch, processes=processes)


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
