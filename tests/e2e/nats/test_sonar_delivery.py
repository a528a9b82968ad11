"""Envelopes through a real broker, with the machinery that lines go through."""

from typing import Any

import nats

from ccpipe.bus.codecs.sonar import SonarCodec
from ccpipe.bus.nats.consumer import ConsumerReader
from ccpipe.bus.nats.sink import NatsSink
from ccpipe.bus.nats.source import NatsSource
from ccpipe.config import Bus, Site
from ccpipe.formats.sonar import (
    Envelope,
    ExtendedUint,
    JobsAttributes,
    JobsData,
    JobsEnvelope,
    MetadataObject,
    SlurmJob,
    encode,
)
from ccpipe.formats.sonar.envelopes import Envelopes
from ccpipe.pipeline import DeadLetter, Sink, Translator
from ccpipe.telemetry import Telemetry
from ccpipe.translate.sonar.cc_to_sonar import CcToSonar
from ccpipe.translate.sonar.sonar_to_cc import SonarToCc
from tests.bus.envelopes import ERROR, JOBS, META, SAMPLE, TIME
from tests.conftest import eventually
from tests.pipeline.parts import ListDeadLetterSink, running


async def publish(site: Site, *envelopes: Envelope) -> None:
    async with NatsSink(site=site, telemetry=Telemetry(), codec=SonarCodec()) as sink:
        await eventually(lambda: sink.bus.is_connected)
        await sink.write(Envelopes(envelopes))


class EnvelopeSink(Sink[Envelopes]):
    """Keeps envelopes."""

    takes = Envelopes

    def __init__(self) -> None:
        self.written: list[Envelope] = []

    async def write(self, records: Envelopes) -> None:
        self.written += records


async def read(
    site: Site, enough: int, **options: object
) -> tuple[list[Envelope], list[DeadLetter]]:
    """Read until there are so many envelopes and dead letters."""
    sink, kept = EnvelopeSink(), ListDeadLetterSink()
    codec = SonarCodec(**options)  # type: ignore[arg-type]
    source = NatsSource(site=site, telemetry=Telemetry(), codec=codec, durable="test")
    async with running(source, sink, dead_letter_sink=kept):
        await eventually(lambda: len(sink.written) + len(kept.letters) >= enough)
    return sink.written, kept.letters


def fox(site: Site) -> Site:
    return Site(cluster="fox.no", hostname="n1", bus=Bus(servers=site.bus.servers))


async def test_envelopes_arrive_complete_and_in_order(site: Site) -> None:
    """Each is one message on the subject of its type; nothing of it is lost."""
    await publish(fox(site), SAMPLE, JOBS, ERROR)
    assert (await read(fox(site), 3))[0] == [SAMPLE, JOBS, ERROR]
    client = await nats.connect(site.bus.servers[0])
    name = (await client.jetstream().streams_info())[0].config.name or ""
    messages = [await client.jetstream().get_msg(name, seq=n) for n in (1, 2, 3)]
    assert [message.subject for message in messages] == [
        "fox%2Eno.sonar.sample",
        "fox%2Eno.sonar.job",
        "fox%2Eno.sonar.error",
    ]
    await client.close()


async def test_invalid_envelope_is_dead_letter_and_others_arrive(site: Site) -> None:
    """With its path and rule, its subject, and its own bytes."""
    await publish(fox(site), SAMPLE)
    bad = encode(JOBS).replace(b'"job_id":7', b'"job_id":-7')
    client = await nats.connect(site.bus.servers[0])
    await client.jetstream().publish("fox%2Eno.sonar.job", bad + encode(ERROR))
    await client.close()
    envelopes, [letter] = await read(fox(site), 3)
    assert envelopes == [SAMPLE, ERROR]
    assert letter.original + b"\n" == bad
    assert letter.origin == "fox%2Eno.sonar.job"
    assert letter.reason.startswith("$.data.attributes.slurm_jobs[0].job_id: ")


async def test_profile_determines_representation_of_numbers(site: Site) -> None:
    """Sonar's own time limits are seconds: written and read as such they stay the same."""
    job = SlurmJob(job_id=1, job_state="RUNNING", time_limit=ExtendedUint(90))
    bare = MetadataObject(producer="sonar", version="0.19.0")
    envelope = JobsEnvelope(bare, JobsData(JobsAttributes(TIME, "fox.no", (job,))))
    async with NatsSink(
        site=fox(site), telemetry=Telemetry(), codec=SonarCodec(profile="sonar")
    ) as sink:
        await eventually(lambda: sink.bus.is_connected)
        await sink.write(Envelopes([envelope]))
    assert (await read(fox(site), 1, profile="sonar"))[0] == [envelope]


async def test_envelopes_survive_conversion_to_lines_and_back(site: Site) -> None:
    """Two bridges: Sonar to lines, lines to Sonar. Nothing is lost, and all is acknowledged."""
    job = SlurmJob(
        job_id=8, job_state="RUNNING", user_name="ann", start_time=TIME, nodes=("c[1-2]",)
    )
    sent = [SAMPLE, JobsEnvelope(META, JobsData(JobsAttributes(TIME, "fox.no", (job,)))), ERROR]
    await publish(fox(site), *sent)
    lines = NatsSink(site=fox(site), telemetry=Telemetry())
    source = NatsSource(
        codec=SonarCodec(), site=fox(site), telemetry=Telemetry(), durable="sonar-to-cc"
    )
    await carry(source, lines, SonarToCc(), 3)
    back = Site(
        cluster="fox.no",
        hostname="n1",
        bus=Bus(servers=site.bus.servers, subjects={"sonar": "back.{name}"}),
    )
    envelopes = NatsSink(site=back, telemetry=Telemetry(), codec=SonarCodec())
    kept = NatsSource(site=fox(site), telemetry=Telemetry(), durable="cc-to-sonar")
    await carry(kept, envelopes, CcToSonar(), 3)
    assert (await read(back, 3))[0] == sent


async def carry(
    source: NatsSource, sink: NatsSink, translator: Translator[Any, Any], minimum: int
) -> None:
    telemetry = Telemetry()
    async with running(source, sink, translators=[translator], telemetry=telemetry):
        await eventually(lambda: telemetry.total(telemetry.written) >= minimum)
        reader = source.reader
        assert isinstance(reader, ConsumerReader)
        await eventually(lambda: reader.is_acknowledged)
    assert telemetry.total(telemetry.dead) == 0
