"""KEDA's own scaler on a real broker, and on one of three: how many bridges for which lag."""

import asyncio
import contextlib
import json
import subprocess
from collections.abc import Iterator
from typing import Any

import nats
import pytest
from nats.js.api import ConsumerConfig, DeliverPolicy
from nats.js.errors import Error as JetStreamError

from ccpipe.bus.nats.server import server_program
from ccpipe.process.die_with_parent import die_with_parent
from scripts.kubernetes_programs import absent, environment
from tests.conftest import free_port
from tests.deployment.test_kubernetes import OBJECTS, called
from tests.servers.nats.daemon import accepts

SCALED = [each for each in OBJECTS if each["kind"] == "ScaledObject"]
MESSAGES = 12_000
REPLICAS = {0: 0, 1: 1, 500: 1, 1000: 1, 1001: 2, 2000: 2, 3500: 4, 12_000: 12}
"""By lag; KEDA keeps the number between minReplicaCount and maxReplicaCount, 1 and 4."""
ACCOUNTS = """
accounts { local { jetstream: enabled, users: [{user: "u", password: "p"}] }
           SYS { users: [{user: "s", password: "p"}] } }
system_account: SYS
"""


@pytest.fixture(scope="module", params=[1, 3], ids=["one", "three"])
def monitoring(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """Run a broker with a full stream, and a consumer for each bridge and lag.

    The servers of a cluster have one port at several addresses, as in Kubernetes.
    """
    if absent("keda-lag"):
        pytest.skip("no keda-lag: scripts/kubernetes_cluster.py install, as root")
    directory = tmp_path_factory.mktemp("brokers")
    client, port, route = free_port(), free_port(), free_port()
    addresses = [f"127.0.0.{i}" for i in range(1, request.param + 1)]
    routes = ", ".join(f'"nats://{address}:{route}"' for address in addresses)
    with contextlib.ExitStack() as stack:
        for address in addresses:
            cluster = f'cluster {{ name: c, listen: "{address}:{route}", routes: [{routes}] }}'
            conf = directory / f"{address}.conf"
            conf.write_text(
                f'server_name: "{address}"\nlisten: "{address}:{client}"\n'
                f'http: "{address}:{port}"\njetstream {{ store_dir: "{directory}/{address}" }}\n'
                + ACCOUNTS
                + (cluster if len(addresses) > 1 else "")
            )
            server = subprocess.Popen(
                [server_program(), "-c", str(conf)],
                stderr=subprocess.DEVNULL, preexec_fn=die_with_parent,  # noqa: PLW1509
            )  # fmt: skip
            stack.callback(server.wait)
            stack.callback(server.kill)
        asyncio.run(fill(client, len(addresses)))
        yield f"127.0.0.1:{port}"


async def fill(port: int, servers: int) -> None:
    await accepts(port)
    bus = await nats.connect(f"nats://u:p@127.0.0.1:{port}")
    jetstream = bus.jetstream(timeout=60)
    async with asyncio.timeout(300):
        while True:
            with contextlib.suppress(JetStreamError, nats.errors.Error):  # no leader yet
                await jetstream.add_stream(
                    name="ccpipe-local", subjects=["local.>"], num_replicas=servers
                )
                break
            await asyncio.sleep(0.2)
    for first in range(0, MESSAGES, 500):
        await asyncio.gather(
            *(jetstream.publish("local.metrics.n1", b"%d" % (first + i)) for i in range(500))
        )
    for each in SCALED:
        for lag in REPLICAS:
            config = ConsumerConfig(
                durable_name=f"{trigger_of(each)['consumer']}-{lag}",
                deliver_policy=DeliverPolicy.BY_START_SEQUENCE,
                opt_start_seq=MESSAGES - lag + 1,
            )
            await jetstream.add_consumer("ccpipe-local", config)
    await bus.close()


def trigger_of(each: dict[str, Any]) -> dict[str, str]:
    metadata: dict[str, str] = each["spec"]["triggers"][0]["metadata"]
    return metadata


@pytest.mark.parametrize("each", SCALED, ids=called)
def test_lag_gives_number_of_bridges(each: dict[str, Any], monitoring: str) -> None:
    """One for each 1000 messages that wait for this bridge, at whichever server leads them."""
    assert (each["spec"]["minReplicaCount"], each["spec"]["maxReplicaCount"]) == (1, 4)
    for lag, replicas in REPLICAS.items():
        trigger = {
            **trigger_of(each),
            "natsServerMonitoringEndpoint": monitoring,
            "consumer": f"{trigger_of(each)['consumer']}-{lag}",
        }
        assert scaler(trigger) == {"lag": lag, "replicas": replicas, "active": lag > 0}


def scaler(trigger: dict[str, str]) -> dict[str, Any]:
    """Return what KEDA's scaler says of a trigger."""
    done = subprocess.run(
        ["keda-lag"], input=json.dumps(trigger), capture_output=True, text=True, check=False,
        env=environment(), timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found
