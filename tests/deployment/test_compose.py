"""compose.yaml: engines accept it, every file is there, and its commands do what they shall.

No container runs here: the commands that containers would run are run as they are.
"""

import asyncio
import json
import re
import subprocess
import sys
import tomllib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import aiohttp
import pytest
import yaml

from ccpipe.bus.nats.server import server_program
from ccpipe.registry import entry_points
from tests.cli.command import ccpipe, command, environment
from tests.conftest import eventually, free_port, program, until_listening
from tests.deployment.compose import BRIDGES, CCPIPE, COMPOSE, SERVICES, Prepared
from tests.paths import ROOT
from tests.servers.victoriametrics import VictoriaMetrics

THREE_BROKERS = yaml.safe_load((ROOT / "bridges/compose/three-brokers.yaml").read_text())
HARDENED = ("user", "read_only", "cap_drop", "security_opt", "restart")


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    return Prepared(tmp_path_factory.mktemp("compose"), "fritz", "f[01-02]")


@pytest.fixture
async def broker(prepared: Prepared, tmp_path: Path) -> AsyncIterator[str]:
    port, log = free_port(), tmp_path / "nats.log"
    text = (prepared.mounted("nats", "/etc/nats") / "nats.conf").read_text()
    text = text.replace("0.0.0.0:4222", f"127.0.0.1:{port}").replace('http: "127.0.0.1:8222"', "")
    (tmp_path / "nats.conf").write_text(text.replace("/var/lib/nats", f"{tmp_path}/jetstream"))
    with log.open("wb") as file:
        words = [server_program(), *SERVICES["nats"]["command"]]
        words[-1] = str(tmp_path / "nats.conf")
        process = subprocess.Popen(words, stdout=file, stderr=file)
    try:
        await until_listening(port, process, log)
        yield f"127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


@pytest.mark.parametrize("name", ["compose.yaml", "bridges/compose/three-brokers.yaml"])
def test_compose_file_is_valid(name: str) -> None:
    """By the schema of the Compose Specification that check-jsonschema includes."""
    checked = subprocess.run(
        [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec",
         ROOT / name],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert checked.returncode == 0, checked.stdout


def test_prepare_creates_every_file_of_containers(prepared: Prepared) -> None:
    """A missing file would become a directory, or keep a container from starting."""
    assert prepared.done.returncode == 0, prepared.done.stderr
    for each in COMPOSE["secrets"].values():
        assert prepared.path(each["file"]).is_file(), each
    for service in (*SERVICES.values(), *THREE_BROKERS["services"].values()):
        for mount in service.get("volumes", ()):
            is_file = Path(mount["target"]).suffix in {".conf", ".toml"}
            path = prepared.path(mount["source"])
            assert path.is_file() if is_file else path.is_dir(), mount
            assert mount["bind"] == {"create_host_path": False}


def test_prepare_writes_private_files_and_keeps_existing_ones(tmp_path: Path) -> None:
    """No secret is readable by others; a second run changes none, and adds nodes."""
    prepared = Prepared(tmp_path, "fritz", CCPIPE_UID="4711", CCPIPE_GID="4712")
    assert prepared.variables["CCPIPE_UID"] == "4711"
    secret = prepared.path("deploy/secrets/grafana_password")
    assert re.fullmatch("[0-9a-f]{48}", secret.read_text())
    for path in prepared.directory.glob("deploy/**/*"):
        assert not path.stat().st_mode & 0o077, path
    before = {path: path.read_bytes() for path in prepared.directory.glob("deploy/**/*.nk")}
    again = subprocess.run(
        [prepared.directory / "bridges/compose/prepare.sh", "fritz", "f01"],
        env=environment(PATH=f"{Path(sys.executable).parent}:/usr/bin:/bin"),
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert again.returncode == 0, again.stderr
    after = {path: path.read_bytes() for path in prepared.directory.glob("deploy/**/*.nk")}
    assert before.items() < after.items()
    assert {path.name for path in after.keys() - before.keys()} == {"f01.nk"}


def test_prepare_gives_brokers_every_node(prepared: Prepared) -> None:
    """The brokers' copy of nats.conf is written again, the password of their routes is not."""
    cluster = prepared.directory / "deploy/nats/cluster.conf"
    before = cluster.read_text()
    subprocess.run(
        [prepared.directory / "bridges/compose/prepare.sh", "fritz", "f77"],
        env=environment(PATH=f"{Path(sys.executable).parent}:/usr/bin:/bin"), check=True,
    )  # fmt: skip
    text = (prepared.directory / "deploy/nats/nats.conf").read_text()
    assert text == (prepared.directory / "deploy/keys/nats.conf").read_text()
    assert "f77" in text
    assert cluster.read_text() == before
    checked = subprocess.run(
        [server_program(), "-t", "--config", cluster],
        env=environment(SERVER_NAME="nats"), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert checked.returncode == 0, checked.stderr


def test_prepare_keeps_variables_of_site(tmp_path: Path) -> None:
    """They stay in ``.env``, and containers get them; its own are written again."""
    (tmp_path / ".env").write_text("CCPIPE_UID=5\nCC_BACKEND_URL=http://cc:8080\n")
    prepared = Prepared(tmp_path, "fritz", CCPIPE_UID="4711", CCPIPE_GID="4712")
    assert prepared.done.returncode == 0, prepared.done.stderr
    assert prepared.variables["CCPIPE_UID"] == "4711"
    assert (tmp_path / ".env").read_text().count("CCPIPE_UID") == 1
    assert prepared.environ("bridge-cc-backend")["CCPIPE_SINK__URL"] == "http://cc:8080"


def test_every_store_has_profile() -> None:
    """Except sinks that print, discard or serve what they get, or send to what a site runs."""
    recipes = {SERVICES[name]["command"][1].lstrip("/") for name in BRIDGES}
    used = {tomllib.loads((ROOT / recipe).read_text())["sink"]["use"] for recipe in recipes}
    assert entry_points("sinks").keys() - used == {
        "clickhouse", "delta", "nats", "null", "otlp", "prometheus_scrape", "stdout",
    }  # fmt: skip


def test_prepare_requires_name_of_cluster(tmp_path: Path) -> None:
    """Without it, it writes nothing."""
    prepared = Prepared(tmp_path)
    assert prepared.done.returncode == 64
    assert "usage" in prepared.done.stderr
    assert not (tmp_path / "deploy").exists()


def test_containers_are_restricted() -> None:
    """None runs as root or with capabilities, or writes outside of its data directory."""
    brokers = {name: THREE_BROKERS["services"][name] for name in ("nats-2", "nats-3")}
    for name, service in (*SERVICES.items(), *brokers.items()):
        hardened = [service[key] for key in HARDENED[2:4]]
        assert hardened == [["ALL"], ["no-new-privileges:true"]], name
        assert service["user"].startswith("${CCPIPE_UID:?"), name
        assert service["read_only"] or name == "kafka"
        assert name == "keys" or "healthcheck" in service, name


@pytest.mark.parametrize("name", SERVICES)
def test_site_configuration_is_in_every_container_of_ccpipe(name: str) -> None:
    """A service's own volumes replace those that it inherits."""
    if name in CCPIPE and name != "keys":
        targets = [each["target"] for each in SERVICES[name]["volumes"]]
        assert targets.count("/etc/ccpipe/ccpipe.toml") == 1


def test_containers_have_memory_limits_of_kubernetes() -> None:
    """The publisher's, a bridge's and the dashboard's are the same in both."""
    for name, manifest in (
        ("publisher", "base/publisher.yaml"),
        ("dashboard", "base/dashboard.yaml"),
        ("bridge-victoriametrics", "bridges/victoriametrics/bridge.yaml"),
    ):
        text = (ROOT / "bridges/kubernetes" / manifest).read_text()
        pods = [each["spec"]["template"]["spec"] for each in yaml.safe_load_all(text)
                if each["kind"] in {"Deployment", "DaemonSet"}]  # fmt: skip
        limit = pods[0]["containers"][0]["resources"]["limits"]["memory"]
        assert SERVICES[name]["mem_limit"] == limit.lower().removesuffix("i"), name


@pytest.mark.parametrize("name", SERVICES)
def test_references_of_containers_are_declared(name: str) -> None:
    """Secrets and dependencies exist; a required service has a health check."""
    service = SERVICES[name]
    assert set(service.get("secrets", ())) <= set(COMPOSE["secrets"])
    secrets = re.findall(r"/run/secrets/(\w+)", json.dumps(service))
    assert set(secrets) <= set(service.get("secrets", ()))
    for other, how in service.get("depends_on", {}).items():
        assert how == {"condition": "service_healthy"}
        assert SERVICES[other]["healthcheck"]["test"][0] == "CMD"
    profiles = set(service.get("profiles", ()))
    for other in service.get("depends_on", ()):
        assert set(SERVICES[other].get("profiles", ())) <= profiles


@pytest.mark.parametrize("name", BRIDGES)
async def test_bridges_are_authorized_and_know_every_setting(
    name: str, prepared: Prepared, broker: str, tmp_path: Path
) -> None:
    """Each bridge's own command reads the bus by its own key, with its container's environment."""
    environ = prepared.environ(name, **{"nats:4222": broker})
    words = [*prepared.command(name), "--dry-run", "--for", "1s"]
    done = await asyncio.to_thread(lambda: ccpipe(*words, stdin=b"", **environ))
    assert done.code == 0, done.err
    assert "ERROR" not in done.err
    assert "0 left out" in done.err


async def test_dashboard_is_viewer_with_token(
    prepared: Prepared, broker: str, tmp_path: Path
) -> None:
    """It subscribes by its own key, answers its health check, and needs the token of prepare.sh."""
    port = free_port()
    environ = prepared.environ(
        "dashboard", **{"nats:4222": broker, "0.0.0.0:8770": f"0.0.0.0:{port}"}
    )
    log = tmp_path / "dashboard.log"
    with log.open("wb") as file:
        process = subprocess.Popen(
            command(*prepared.command("dashboard")), env=environment(**environ), stderr=file
        )
    try:
        await until_listening(port, process, log)
        token = prepared.path("deploy/secrets/dashboard_tokens").read_text()
        about = f"http://127.0.0.1:{port}/api/about"
        async with aiohttp.ClientSession() as session:
            async with session.get(about) as answer:
                assert answer.status == 401
            headers = {"Authorization": f"Bearer {token}"}
            async with session.get(about, headers=headers) as answer:
                assert (await answer.json())["role"] == "admin"
            async with session.ws_connect(
                f"http://127.0.0.1:{port}/api/live", headers=headers
            ) as socket:
                await socket.send_str('{"view": "overview"}')

                async def is_connected() -> bool:
                    return b'"connected":true' in (await socket.receive_bytes(timeout=30))

                while not await is_connected():
                    pass
    finally:
        process.terminate()
        assert process.wait() == 0
    assert "ERROR" not in log.read_text()
    assert "WARNING" not in log.read_text()
    [published] = SERVICES["dashboard"]["ports"]
    assert published.startswith("127.0.0.1:")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[VictoriaMetrics]:
    flags = [
        flag.replace("/etc/prometheus", f"{ROOT}/bridges/prometheus")
        for flag in SERVICES["victoriametrics"]["command"]
        if not re.match("-(storageDataPath|promscrape|retentionPeriod|influxSkip)", flag)
    ]
    with VictoriaMetrics(tmp_path / "store", *flags) as store:
        yield store


async def test_metrics_of_publisher_reach_store(
    prepared: Prepared, broker: str, store: VictoriaMetrics
) -> None:
    """Publisher, broker, bridge and store, each with its container's command and settings."""
    addresses = {
        "nats:4222": broker,
        "127.0.0.1:4222": broker,
        "http://victoriametrics:8428": store.url,
    }
    bridge = await asyncio.create_subprocess_exec(
        *command(*prepared.command("bridge-victoriametrics")),
        env=environment(**prepared.environ("bridge-victoriametrics", **addresses)),
        stderr=subprocess.DEVNULL,
    )
    try:
        environ = prepared.environ("publisher", **addresses)
        words = [*prepared.command("publisher"), "--once"]
        done = await asyncio.to_thread(lambda: ccpipe(*words, stdin=b"", **environ))
        assert done.code == 0, done.err
        await eventually(lambda: bool(store.samples("cpu_load")))
    finally:
        bridge.terminate()
        await bridge.wait()
    [(_, labels, _, _)] = store.samples("cpu_load")
    host = prepared.variables["CCPIPE_HOSTNAME"]
    assert dict(labels) == {"cluster": "fritz", "hostname": host, "type": "node"}
    assert any("stype_id" in dict(labels) for _, labels, _, _ in store.samples())


def test_victoriametrics_accepts_its_flags_and_files() -> None:
    """It reads its targets from Prometheus' file, and leaves the rules to Prometheus."""
    flags = [
        flag.replace("/etc/prometheus", f"{ROOT}/bridges/prometheus")
        for flag in SERVICES["victoriametrics"]["command"]
    ]
    checked = subprocess.run(
        [program("victoria-metrics", "victoria-metrics"), "-dryRun", *flags],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert checked.returncode == 0, checked.stderr
    assert "cannot" not in checked.stderr


def test_image_copies_existing_files() -> None:
    """Every path of the project in the Dockerfile exists."""
    text = (ROOT / "bridges/Dockerfile").read_text()
    copied = re.findall(r"^COPY (?!--)(.+) \S+$", text, re.MULTILINE)
    for pattern in " ".join(copied).split():
        assert list(ROOT.glob(pattern)), pattern


def test_image_has_extras_of_its_recipes() -> None:
    """Each extra that a recipe requires is installed."""
    text = (ROOT / "bridges/Dockerfile").read_text()
    [installed] = re.findall(r"^ARG EXTRAS=([\w,]+)$", text, re.MULTILINE)
    recipes = [SERVICES[name]["command"][1] for name in CCPIPE if name in BRIDGES]
    needed = {
        extra
        for recipe in recipes
        for extras in re.findall(r"ccpipe\[([\w,]+)\]", (ROOT / recipe.lstrip("/")).read_text())
        for extra in extras.split(",")
    }
    assert needed | {"dashboard", "nkeys", "nvidia"} <= set(installed.split(","))
