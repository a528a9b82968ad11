"""What answers control requests on a node, ready for them."""

import contextlib
from collections.abc import AsyncIterator, Mapping

from ccpipe.bus.nats.connection import Connection
from ccpipe.config import Site
from ccpipe.node.agent.responder import Responder, _own_subjects
from ccpipe.node.controls.control import Control
from tests.conftest import eventually


@contextlib.asynccontextmanager
async def responding(
    bus: Connection, site: Site, controls: Mapping[str, Control]
) -> AsyncIterator[Responder]:
    """Answer requests; the broker has the subscriptions, which a task makes, from the start."""
    own = {subject for subject, _ in _own_subjects(site)}
    async with Responder(bus, site, controls) as responder:
        await eventually(lambda: own <= {subject for subject, _, _ in bus._subscriptions})
        await bus.flush()
        yield responder
