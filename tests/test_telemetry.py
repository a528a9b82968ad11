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
from ccpipe.telemetry import Counter, Telemetry, TelemetryServer
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
        (sample.name, sample.labels.get("part", "")): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


class Nats:
    """A part."""


def test_counters_go_by_part(telemetry: Telemetry) -> None:
    """A part is counted by the name of its class, or by a name of its own; totals add them up."""
    telemetry.count(telemetry.read, Nats(), 3)
    telemetry.count(telemetry.read, Nats())
    telemetry.count(telemetry.read, "other", 10)
    assert telemetry.total(telemetry.read) == 14
    assert telemetry.total(telemetry.written) == 0
    read = "ccpipe_read_records_total"
    assert telemetry.registry.get_sample_value(read, {"part": "Nats"}) == 4
    assert telemetry.registry.get_sample_value(read, {"part": "other"}) == 10


def test_the_page_shows_what_was_counted(telemetry: Telemetry, server: TelemetryServer) -> None:
    telemetry.wrote(Nats(), 500)
    telemetry.queued_bytes.set(1234)
    page = samples(get(server.port, "/metrics")[1])
    assert page["ccpipe_written_records_total", "Nats"] == 500
    assert page["ccpipe_written_batches_total", "Nats"] == 1
    assert page["ccpipe_queued_bytes", ""] == 1234
    assert page["ccpipe_last_write_seconds", ""] > 1.7e9
    telemetry.wrote(Nats(), 1)
    page = samples(get(server.port, "/metrics")[1])
    assert page["ccpipe_written_records_total", "Nats"] == 501


def test_health_is_to_answer_and_ready_is_to_write(
    telemetry: Telemetry, server: TelemetryServer
) -> None:
    """Not ready before the start and while writes fail; healthy all the while."""

    def pages() -> tuple[int, int]:
        return get(server.port, "/health")[0], get(server.port, "/ready")[0]

    assert pages() == (200, 503)
    telemetry.wrote(Nats(), 1)
    assert pages() == (200, 200)
    telemetry.failed(Nats())
    assert pages() == (200, 503)
    assert telemetry.total(telemetry.retries) == 1
    telemetry.ready = True
    assert pages() == (200, 200)


def test_ready_is_to_make_progress(telemetry: Telemetry, server: TelemetryServer) -> None:
    """A part that is stuck is named; one that waits for others, or goes on, is not."""
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


@pytest.mark.parametrize("path", ["/", "/metric", "/metrics/", "/%ff", "/../etc/passwd"])
def test_other_pages_are_not_there(server: TelemetryServer, path: str) -> None:
    assert get(server.port, path) == (404, "/health /ready /metrics\n")


def test_a_query_does_not_matter(server: TelemetryServer) -> None:
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
def test_an_address_that_cannot_be_had_is_a_configuration_error(
    telemetry: Telemetry, listen: str
) -> None:
    """The key path and the address are named, whatever is wrong with it."""
    with pytest.raises(ConfigError) as caught:
        telemetry.serve(listen)
    assert str(caught.value).startswith(f"telemetry.listen: cannot listen at {listen!r}: ")


def test_a_port_in_use_is_a_configuration_error(server: TelemetryServer) -> None:
    """Two bridges of one recipe on one machine are told so before they start."""
    with pytest.raises(ConfigError, match=f"telemetry.listen: .*:{server.port}.* in use"):
        Telemetry().serve(f"127.0.0.1:{server.port}")


def test_closing_frees_the_port(telemetry: Telemetry) -> None:
    """The same address can be had again at once; nobody answers in between."""
    server = telemetry.serve("127.0.0.1:0")
    assert get(server.port, "/health")[0] == 200
    server.close()
    with pytest.raises(urllib.error.URLError):
        get(server.port, "/health")
    again = telemetry.serve(f"127.0.0.1:{server.port}")
    assert get(again.port, "/health")[0] == 200
    again.close()
    assert not [thread for thread in threading.enumerate() if not thread.daemon][1:]


def test_without_a_host_it_is_this_machine_only(telemetry: Telemetry) -> None:
    """Nothing is told to the network unless somebody says so."""
    server = telemetry.serve(":0")
    assert server._server.server_address[0] == "127.0.0.1"
    assert get(server.port, "/health")[0] == 200
    server.close()


def test_a_client_that_says_nothing_blocks_nobody(server: TelemetryServer) -> None:
    """Others are answered meanwhile, and closing does not wait for it."""
    address = ("127.0.0.1", server.port)
    with socket.create_connection(address), socket.create_connection(address) as slow:
        slow.sendall(b"GET /metrics HT")
        assert get(server.port, "/health") == (200, "ok\n")
        slow.sendall(b"TP/1.1\r\n\r\n")
        assert slow.makefile("rb").read().startswith(b"HTTP/1.0 200 OK")  # nor was it cut off


def test_a_client_that_goes_away_leaves_no_mess(
    server: TelemetryServer, capfd: pytest.CaptureFixture[str]
) -> None:
    """Port scanners and impatient probes print no tracebacks."""
    for said in (b"", b"GET /metrics HTTP/1.1\r\n", b"\x00\xff\r\n\r\n"):
        with socket.create_connection(("127.0.0.1", server.port)) as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            client.sendall(said)
    assert get(server.port, "/health")[0] == 200
    server.close()
    assert capfd.readouterr() == ("", "")


def test_counters_are_there_from_zero(telemetry: Telemetry, server: TelemetryServer) -> None:
    """A rate over a counter that appears with its first error would miss that error."""
    telemetry.declare(telemetry.retries, Nats(), "other")
    page = samples(get(server.port, "/metrics")[1])
    assert page["ccpipe_retries_total", "Nats"] == 0
    assert page["ccpipe_retries_total", "other"] == 0


def test_the_version_is_a_label(server: TelemetryServer) -> None:
    assert (
        f'ccpipe_build_info{{python="{platform.python_version()}",version="{__version__}"}} 1.0'
        in (get(server.port, "/metrics")[1])
    )


class Broker:
    """A connection."""

    def __init__(self, *, is_connected: bool) -> None:
        self.is_connected = is_connected


def test_connected_is_all_connections(telemetry: Telemetry, server: TelemetryServer) -> None:
    def shown() -> float | None:
        return samples(get(server.port, "/metrics")[1]).get(("ccpipe_connected", ""))

    assert shown() is None
    telemetry.connections.append(Broker(is_connected=True))
    assert shown() == 1
    telemetry.connections.append(Broker(is_connected=False))
    assert shown() == 0


def test_openmetrics_is_for_who_asks(telemetry: Telemetry, server: TelemetryServer) -> None:
    """By the header Accept, as Prometheus sends it; its own parser reads it."""
    telemetry.wrote(Nats(), 3)
    url = f"http://127.0.0.1:{server.port}/metrics"
    accept = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"
    asked = urllib.request.Request(url, headers={"Accept": accept})
    with urllib.request.urlopen(asked, timeout=20) as answer:  # noqa: S310 - http
        kind, text = answer.headers["Content-Type"], answer.read().decode()
    assert kind.startswith("application/openmetrics-text; version=1.0.0")
    assert text.endswith("# EOF\n")
    read = openmetrics.text_string_to_metric_families(text)  # type: ignore[no-untyped-call]
    families = {family.name: family for family in read}
    assert families["ccpipe_written_records"].type == "counter"
    with urllib.request.urlopen(url, timeout=20) as answer:
        assert answer.headers["Content-Type"].startswith("text/plain; version=")


def test_the_page_names_every_metric(telemetry: Telemetry, server: TelemetryServer) -> None:
    """``docs/operations/health.md`` has all of them and no others, by the rule for names."""
    telemetry.connections.append(Broker(is_connected=True))
    telemetry.unread.set(0, "durable")
    for value in vars(telemetry).values():
        if isinstance(value, Counter):
            telemetry.declare(value, "part")
    text = get(server.port, "/metrics")[1]
    for family in text_string_to_metric_families(text):
        assert family.name.startswith("ccpipe_")
        assert family.documentation
        labels = {"version", "python"} if family.name == "ccpipe_build_info" else {"part"}
        assert all(sample.labels.keys() <= labels for sample in family.samples)
    names = {name for name, _ in samples(text)}
    page = (ROOT / "docs/operations/health.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `(ccpipe_\w+)`", page, re.MULTILINE)) == names
