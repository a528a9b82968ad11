"""Counters, and the three pages over HTTP."""

import platform
import re
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest
from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client.parser import text_string_to_metric_families

from ccpipe import __version__
from ccpipe.errors import ConfigError
from ccpipe.telemetry import Counter, Gauge, RecipesTelemetry, Telemetry, TelemetryServer
from tests.paths import ROOT


@pytest.fixture
def telemetry() -> Telemetry:
    return Telemetry()


@pytest.fixture
def server(telemetry: Telemetry) -> Iterator[TelemetryServer]:
    server = telemetry.serve("127.0.0.1:0")
    yield server
    server.close()


def get(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=20) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def samples(text: str) -> dict[tuple[str, str], float]:
    return {
        (sample.name, sample.labels.get("component", "")): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


class Nats:
    """A part."""


def test_counters_are_kept_by_part(telemetry: Telemetry) -> None:
    """Its label is the name of its class, or its own name; totals are sums."""
    telemetry.count(telemetry.read, Nats(), 3)
    telemetry.count(telemetry.read, Nats())
    telemetry.count(telemetry.read, "other", 10)
    assert telemetry.total(telemetry.read) == 14
    assert telemetry.total(telemetry.written) == 0
    read = "ccpipe_read_records_total"
    assert telemetry.registry.get_sample_value(read, {"component": "Nats"}) == 4
    assert telemetry.registry.get_sample_value(read, {"component": "other"}) == 10


def test_metrics_page_shows_counters(telemetry: Telemetry, server: TelemetryServer) -> None:
    telemetry.wrote(Nats(), 500, 0.5)
    telemetry.queued_bytes.set(1234)
    page = samples(get(server.port, "/metrics")[1])
    assert page["ccpipe_written_records_total", "Nats"] == 500
    assert page["ccpipe_written_batches_total", "Nats"] == 1
    assert page["ccpipe_write_seconds_total", "Nats"] == 0.5
    assert page["ccpipe_queued_bytes", ""] == 1234
    assert page["ccpipe_last_write_timestamp_seconds", ""] > 1.7e9
    telemetry.wrote(Nats(), 1, 0.5)
    page = samples(get(server.port, "/metrics")[1])
    assert page["ccpipe_written_records_total", "Nats"] == 501


def test_ready_fails_while_writes_fail_and_health_does_not(
    telemetry: Telemetry, server: TelemetryServer
) -> None:
    """Not ready before the start either."""

    def pages() -> tuple[int, int]:
        return get(server.port, "/health")[0], get(server.port, "/ready")[0]

    assert pages() == (200, 503)
    telemetry.wrote(Nats(), 1, 0.5)
    assert pages() == (200, 200)
    telemetry.failed(Nats())
    assert pages() == (200, 503)
    assert telemetry.total(telemetry.retries) == 1
    telemetry.ready = True
    assert pages() == (200, 200)


def test_ready_names_part_without_progress(telemetry: Telemetry, server: TelemetryServer) -> None:
    """Not one that waits for others, or goes on."""
    telemetry.ready = True
    telemetry.expect("late", -1)  # named by its class, as parts are
    telemetry.expect(telemetry, 60)
    status, body = get(server.port, "/ready")
    assert (status, body) == (503, "not ready: no progress in str\n")
    assert get(server.port, "/health")[0] == 200
    telemetry.expect("late", 60)
    assert get(server.port, "/ready")[0] == 200
    telemetry.expect("late", -1)
    telemetry.expect_nothing("late")
    assert get(server.port, "/ready")[0] == 200


def test_ready_fails_until_every_broker_was_reached_once(
    telemetry: Telemetry, server: TelemetryServer
) -> None:
    """It names those that were never reached; a connection that is lost later is no reason."""
    telemetry.ready = True
    for part, broker in ((Nats(), "nats://a:4222"), (telemetry, "mqtt://b:1883")):
        telemetry.await_broker(part, broker)
    reason = "not connected to nats://a:4222, mqtt://b:1883 since the start"
    assert get(server.port, "/ready") == (503, f"not ready: {reason}\n")
    telemetry.reached(telemetry)
    telemetry.reached(telemetry)
    assert "nats://a:4222 since" in get(server.port, "/ready")[1]


@pytest.mark.parametrize("path", ["/", "/metric", "/metrics/", "/%ff", "/../etc/passwd"])
def test_other_pages_are_not_found(server: TelemetryServer, path: str) -> None:
    assert get(server.port, path) == (404, "/health /ready /metrics\n")


def test_query_string_is_ignored(server: TelemetryServer) -> None:
    assert get(server.port, "/health?verbose=1") == (200, "ok\n")


@pytest.mark.parametrize(
    "listen",
    [
        "127.0.0.1",
        "127.0.0.1:",
        "127.0.0.1:many",
        "127.0.0.1:70000",
        "[::1",
        "host.invalid:9100",
        "192.0.2.1:9100",
        "9100",
        "a" * 70 + ":9100",
        "",
    ],
)
def test_unusable_address_is_configuration_error(telemetry: Telemetry, listen: str) -> None:
    """With the key path and the address."""
    with pytest.raises(ConfigError) as caught:
        telemetry.serve(listen)
    assert str(caught.value).startswith(f"telemetry.listen: cannot listen on {listen!r}: ")


def test_port_in_use_is_configuration_error(server: TelemetryServer) -> None:
    """Before the start, if two bridges on a machine have one recipe."""
    with pytest.raises(ConfigError, match=f"telemetry.listen: .*:{server.port}.* in use"):
        Telemetry().serve(f"127.0.0.1:{server.port}")


def test_close_frees_port(telemetry: Telemetry) -> None:
    """The same address can be bound again at once."""
    server = telemetry.serve("127.0.0.1:0")
    assert get(server.port, "/health")[0] == 200
    server.close()
    with pytest.raises(urllib.error.URLError):
        get(server.port, "/health")
    again = telemetry.serve(f"127.0.0.1:{server.port}")
    assert get(again.port, "/health")[0] == 200
    again.close()
    assert not [thread for thread in threading.enumerate() if not thread.daemon][1:]


def test_address_without_host_is_loopback(telemetry: Telemetry) -> None:
    """Nothing is served to the network unless configured."""
    server = telemetry.serve(":0")
    assert server._server.server_address[0] == "127.0.0.1"
    assert get(server.port, "/health")[0] == 200
    server.close()


def test_silent_client_does_not_block_others(server: TelemetryServer) -> None:
    """Closing does not wait for it, either."""
    address = ("127.0.0.1", server.port)
    with socket.create_connection(address), socket.create_connection(address) as slow:
        slow.sendall(b"GET /metrics HT")
        assert get(server.port, "/health") == (200, "ok\n")
        slow.sendall(b"TP/1.1\r\n\r\n")
        assert slow.makefile("rb").read().startswith(b"HTTP/1.0 200 OK")  # nor was it cut off


def test_client_that_disconnects_causes_no_traceback(
    server: TelemetryServer, capfd: pytest.CaptureFixture[str]
) -> None:
    """Such as a port scanner or an impatient probe."""
    for sent in (b"", b"GET /metrics HTTP/1.1\r\n", b"\x00\xff\r\n\r\n"):
        with socket.create_connection(("127.0.0.1", server.port)) as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            client.sendall(sent)
    assert get(server.port, "/health")[0] == 200
    server.close()
    assert capfd.readouterr() == ("", "")


def test_counters_start_at_zero(telemetry: Telemetry, server: TelemetryServer) -> None:
    """The rate of a counter that appears with its first error would miss that error."""
    telemetry.declare(telemetry.retries, Nats(), "other")
    page = samples(get(server.port, "/metrics")[1])
    assert page["ccpipe_retries_total", "Nats"] == 0
    assert page["ccpipe_retries_total", "other"] == 0


def test_version_is_label(server: TelemetryServer) -> None:
    assert (
        f'ccpipe_build_info{{python="{platform.python_version()}",version="{__version__}"}} 1.0'
        in (get(server.port, "/metrics")[1])
    )


class Broker:
    """A connection."""

    def __init__(self, *, is_connected: bool) -> None:
        self.is_connected = is_connected


def test_connected_requires_all_connections(telemetry: Telemetry, server: TelemetryServer) -> None:
    def shown() -> float | None:
        return samples(get(server.port, "/metrics")[1]).get(("ccpipe_connected", ""))

    assert shown() is None
    telemetry.connections.append(Broker(is_connected=True))
    assert shown() == 1
    telemetry.connections.append(Broker(is_connected=False))
    assert shown() == 0


def test_openmetrics_format_follows_accept_header(
    telemetry: Telemetry, server: TelemetryServer
) -> None:
    """As sent by Prometheus; the output is read by its own parser."""
    telemetry.wrote(Nats(), 3, 0.5)
    url = f"http://127.0.0.1:{server.port}/metrics"
    accept = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"
    with_accept = urllib.request.Request(url, headers={"Accept": accept})
    with urllib.request.urlopen(with_accept, timeout=20) as answer:  # noqa: S310 - http
        kind, text = answer.headers["Content-Type"], answer.read().decode()
    assert kind.startswith("application/openmetrics-text; version=1.0.0")
    assert text.endswith("# EOF\n")
    read = openmetrics.text_string_to_metric_families(text)  # type: ignore[no-untyped-call]
    families = {family.name: family for family in read}
    assert families["ccpipe_written_records"].type == "counter"
    with urllib.request.urlopen(url, timeout=20) as answer:
        assert answer.headers["Content-Type"].startswith("text/plain; version=")


def test_health_page_has_every_metric(telemetry: Telemetry, server: TelemetryServer) -> None:
    """All metrics in ``docs/operations/health.md`` and no others, by the rule for names."""
    telemetry.connections.append(Broker(is_connected=True))
    telemetry.pending_messages.set(0, "durable")
    for value in vars(telemetry).values():
        if isinstance(value, Counter):
            telemetry.declare(value, "one")
    each = [one for one in vars(telemetry).values() if isinstance(one, Counter | Gauge)]
    labels = {one.name: {one.label} for one in each}
    labels["ccpipe_build_info"] = {"version", "python"}
    text = get(server.port, "/metrics")[1]
    for family in text_string_to_metric_families(text):
        assert family.name.startswith("ccpipe_")
        assert family.documentation
        names = labels.get(family.name, set())
        assert all(sample.labels.keys() <= names for sample in family.samples)
    names = {name for name, _ in samples(text)}
    page = (ROOT / "docs/operations/health.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `(ccpipe_\w+)`", page, re.MULTILINE)) == names


def test_recipe_is_label_where_several_run() -> None:
    """Each metric is described once, whether or not all recipes have it, or samples of it."""
    fritz, alex = Telemetry(), Telemetry()
    fritz.count(fritz.read, "Slurm", 3)
    alex.count(alex.read, "Slurm", 4)
    alex.connections.append(Broker(is_connected=True))
    both = RecipesTelemetry({"fritz": fritz, "alex": alex})
    for _ in range(2):  # a page does not add to the next
        assert _of_recipes(both, "ccpipe_read_records_total", component="Slurm") == (3, 4)
        assert _of_recipes(both, "ccpipe_connected") == (None, 1)
        assert _of_recipes(both, "ccpipe_queued_bytes") == (0, 0)
    names = [family.name for family in both.collect()]
    assert len(names) == len(set(names))


def _of_recipes(both: RecipesTelemetry, name: str, **labels: str) -> tuple[float | None, ...]:
    value = both.registry.get_sample_value
    return tuple(value(name, {"recipe": recipe, **labels}) for recipe in ("fritz", "alex"))


def test_ready_requires_all_recipes() -> None:
    """The reason names each recipe that is not."""
    fritz, alex = Telemetry(), Telemetry()
    fritz.ready = True
    server = RecipesTelemetry({"fritz": fritz, "alex": alex}).serve("127.0.0.1:0")
    try:
        status, text = get(server.port, "/ready")
        assert (status, text) == (
            503,
            "not ready: alex: not running, or the last write failed\n",
        )
        alex.ready = True
        assert get(server.port, "/ready")[0] == 200
    finally:
        server.close()
