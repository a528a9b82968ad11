"""The publisher's Sonar envelopes: imported only if some are enabled, since they take 1 MB."""

from collections.abc import Iterator
from functools import partial
from time import time_ns

import msgspec

from ccpipe.bus.codecs.sonar import SonarCodec
from ccpipe.bus.nats.connection import Connection
from ccpipe.bus.nats.sink import NatsSink
from ccpipe.config import Site
from ccpipe.formats.sonar import Envelope, Envelopes
from ccpipe.node.agent.parts import AgentParts
from ccpipe.node.collectors.sonar.envelope import Errors
from ccpipe.node.collectors.sonar.sysinfo import SonarSysinfo
from ccpipe.node.sampling.sampler import Sampler
from ccpipe.pipeline import Limits
from ccpipe.telemetry import Telemetry

LIMITS = Limits(age=0.0, memory=128 * 2**10)
"""An envelope counts as a kilobyte here: this holds the envelopes of about ten hours."""


def envelope_sampler(parts: AgentParts, *, once: bool) -> Sampler:
    settings = parts.of_sonar()
    if once:  # two readings a second apart, not minutes
        settings = msgspec.structs.replace(settings, interval=1.0, intervals={}, jitter=0.0)
    return Sampler(
        settings,
        once=once,
        at_start=("sonar_sysinfo",),
        gives=Envelopes,
        pack=Envelopes,
        record=Envelope,
        make_error=partial(_failure, parts.site),
    )


def envelope_sink(site: Site, bus: Connection, telemetry: Telemetry) -> NatsSink:
    codec = SonarCodec(profile=site.publish.sonar.profile)
    return NatsSink(codec=codec, site=site, telemetry=telemetry).using(bus)


def sysinfo(site: Site) -> Iterator[Envelope]:
    described = SonarSysinfo(cluster=site.cluster, node=site.hostname, lstopo=False)
    return described.collect(time_ns())


def _failure(site: Site, slot: int, text: str) -> Envelope:
    errors = Errors()
    errors.note(text)
    return errors.envelope(slot, site.cluster, site.hostname)
