"""bridges/kubernetes: valid by Kubernetes' own schemas, and without dangling references.

No cluster runs here. Manifests are checked by the schemas of Kubernetes as kubernetes-validate
brings them, and recipes with their containers' settings by ccpipe itself.
"""

import json
import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from ccpipe.bus.nats.server import server_program
from ccpipe.bus.nats.streams.stream import stream_name
from ccpipe.bus.subjects import Subjects
from ccpipe.cli.bridge import recipe_parts
from ccpipe.config import Recipe, Site, load, read_toml
from ccpipe.dashboard.server import DashboardServer
from ccpipe.dashboard.sign_in import SignIn, is_loopback
from ccpipe.live.feed import LiveFeed
from ccpipe.telemetry import Telemetry
from tests.cli.command import ccpipe
from tests.paths import ROOT

DIRECTORY = ROOT / "bridges/kubernetes"
SITE = DIRECTORY / "site"
KUSTOMIZATION = yaml.safe_load((SITE / "kustomization.yaml").read_text())
FILES = sorted(path for path in DIRECTORY.rglob("*/*.yaml") if path.name != "kustomization.yaml")
OBJECTS: list[dict[str, Any]] = [
    each for path in FILES for each in yaml.load_all(path.read_text(), yaml.CSafeLoader)
]
WORKLOADS = [each for each in OBJECTS if each["kind"] in ("Deployment", "DaemonSet")]
BRIDGES = [
    each
    for each in WORKLOADS
    if each["kind"] == "Deployment" and each["metadata"]["name"].startswith("bridge-")
]
SECRETS = {
    "ccpipe-bridge-key", "ccpipe-dashboard", "ccpipe-node-keys", "ccpipe-stores",
    "ccpipe-viewer-key",
}  # fmt: skip
"""Objects that users create as in docs/operations/kubernetes.md."""


def called(each: dict[str, Any]) -> str:
    return f"{each['kind']}-{each['metadata']['name']}"


def named(kind: str, name: str) -> dict[str, Any]:
    [found] = [e for e in OBJECTS if (e["kind"], e["metadata"]["name"]) == (kind, name)]
    return found


@pytest.mark.parametrize("version", ["1.31", "1.37"])
def test_objects_are_valid_for_schemas_of_kubernetes(version: str) -> None:
    """Every key is known and has the right type, in an older version and in the newest."""
    for each in OBJECTS:
        if each["kind"] != "ScaledObject":
            kubernetes_validate.validate(each, version, strict=True)


def test_schemas_reject_misspelt_key() -> None:
    """So that the test above would find one."""
    broken = json.loads(json.dumps(WORKLOADS[0]).replace("readOnlyRootFilesystem", "readOnlyRoot"))
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(broken, "1.31", strict=True)


@pytest.mark.parametrize("each", WORKLOADS, ids=called)
def test_pods_are_hardened_and_their_references_exist(each: dict[str, Any]) -> None:
    """They have probes and limits, and each volume has a source."""
    template = each["spec"]["template"]
    pod = template["spec"]
    [container] = pod["containers"]
    labels = template["metadata"]["labels"]
    assert each["spec"]["selector"]["matchLabels"] == labels
    assert pod["securityContext"]["runAsNonRoot"]
    assert pod["automountServiceAccountToken"] is False
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert container["resources"]["limits"]["memory"]
    probes = {key: container[key]["httpGet"]["path"] for key in container if key.endswith("Probe")}
    assert probes == {
        "startupProbe": "/health", "livenessProbe": "/health", "readinessProbe": "/ready"
    }  # fmt: skip
    ports = {port["name"] for port in container["ports"]}
    assert {probe["httpGet"]["port"] for key, probe in container.items() if "Probe" in key} <= ports
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    assert {mount["name"] for mount in container["volumeMounts"]} == set(volumes)
    for volume in volumes.values():
        if secret := volume.get("secret"):
            assert secret["secretName"] in SECRETS
        elif configuration := volume.get("configMap"):
            name = configuration["name"]
            generated = {made["name"] for made in KUSTOMIZATION["configMapGenerator"]}
            assert name in generated or named("ConfigMap", name)
        elif claim := volume.get("persistentVolumeClaim"):
            assert named("PersistentVolumeClaim", claim["claimName"])
    if each["kind"] == "Deployment":
        policy = named("NetworkPolicy", each["metadata"]["name"])
        assert policy["spec"]["podSelector"]["matchLabels"] == labels


def test_spool_of_publisher_outlives_pod() -> None:
    """It is on the node's disk, in its user's directory; one container is root to create it."""
    pod = named("DaemonSet", "publisher")["spec"]["template"]["spec"]
    [container], [first] = pod["containers"], pod["initContainers"]
    state = next(row["value"] for row in container["env"] if row["name"] == "XDG_STATE_HOME")
    mounts = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    assert volumes[mounts[state]]["hostPath"]["type"] == "DirectoryOrCreate"
    owner = f"{pod['securityContext']['runAsUser']}:{pod['securityContext']['runAsGroup']}"
    assert first["command"] == ["chown", owner, state]
    assert [mount["mountPath"] for mount in first["volumeMounts"]] == [state]
    assert first["securityContext"]["capabilities"] == {"drop": ["ALL"], "add": ["CHOWN"]}
    level = "pod-security.kubernetes.io/enforce"
    assert named("Namespace", "ccpipe")["metadata"]["labels"][level] == "privileged"


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("site") / "keys"
    done = ccpipe("auth", "init", directory, "--cluster", "local", "--node", "n1")
    assert done.code == 0, done.err
    return directory


@pytest.mark.parametrize("each", BRIDGES, ids=called)
def test_bridges_know_every_setting(
    each: dict[str, Any], keys: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ConfigMap's recipe is the project's, and accepts the settings of the container."""
    [container] = each["spec"]["template"]["spec"]["containers"]
    [command, path] = container["args"]
    assert command == "bridge"
    name = Path(path).name
    text = named("ConfigMap", f"recipe-{Path(name).stem}")["data"][name]
    assert text == (ROOT / "bridges" / name).read_text()
    environ = {row["name"]: row["value"] for row in container["env"]}
    mounts = [mount["mountPath"] for mount in container["volumeMounts"]]
    for value in environ.values():
        if value.startswith("/"):
            assert any(value.startswith(mount) for mount in mounts), value
    for file in re.findall(r'^(?:state|checkpoint) = "(.+)"', text, re.MULTILINE):
        assert any(file.startswith(mount) for mount in mounts), file
    secret = tmp_path / "secret"
    secret.write_text("secret")
    places = {
        "/etc/ccpipe/keys": f"{keys}/nkeys/bridge",
        "/etc/ccpipe/stores/postgres_password": str(secret),
        "/data": str(tmp_path),
    }
    for place, here in places.items():
        environ = {key: value.replace(place, here) for key, value in environ.items()}
    monkeypatch.chdir(tmp_path)
    local = tmp_path / name
    local.write_text(text.replace("/var/lib/ccpipe", str(tmp_path)))
    loaded = load(local, Recipe, environ=environ, below=read_toml(SITE / "ccpipe.toml"))
    source, _, sink = recipe_parts(loaded, local, Telemetry())
    assert source
    assert sink


def test_dashboard_is_viewer_with_access_control(keys: Path, tmp_path: Path) -> None:
    """It has the key of a viewer, and the Service reaches its port."""
    deployment = named("Deployment", "dashboard")
    [container] = deployment["spec"]["template"]["spec"]["containers"]
    assert container["args"] == ["dashboard"]
    (tmp_path / "tokens").write_text("token user alice\n")
    environ = {row["name"]: row["value"] for row in container["env"]}
    for place, here in (
        ("/etc/ccpipe/keys", f"{keys}/nkeys/viewer"),
        ("/etc/ccpipe/dashboard", str(tmp_path)),
    ):
        environ = {key: value.replace(place, here) for key, value in environ.items()}
    site = load(SITE / "ccpipe.toml", Site, environ=environ)
    sign_in = SignIn(site.dashboard)
    feed = LiveFeed(site, Telemetry(), name="dashboard")
    server = DashboardServer(feed, sign_in=sign_in)
    assert not sign_in.is_open
    assert not is_loopback(server.host)
    [port] = container["ports"]
    assert port["containerPort"] == server.port
    service = named("Service", "dashboard")["spec"]
    assert service["selector"] == deployment["spec"]["selector"]["matchLabels"]
    assert service["ports"][0]["targetPort"] == port["name"]
    policy = named("NetworkPolicy", "dashboard")["spec"]
    assert policy["ingress"] == [{"ports": [{"port": server.port, "protocol": "TCP"}]}]


@pytest.mark.parametrize("each", [e for e in WORKLOADS if e["kind"] == "Deployment"], ids=called)
def test_deployments_meet_restricted_pod_security(each: dict[str, Any]) -> None:
    """As the Pod Security Standards define that level."""
    pod = each["spec"]["template"]["spec"]
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert pod["securityContext"]["runAsUser"] > 0
    assert not pod.keys() & {"hostNetwork", "hostPID", "hostIPC"}
    kinds = {kind for volume in pod["volumes"] for kind in volume} - {"name"}
    assert kinds <= {"configMap", "secret", "emptyDir", "persistentVolumeClaim"}


def test_publishers_know_every_setting() -> None:
    """The DaemonSet's environment is a configuration."""
    [publisher] = [each for each in WORKLOADS if each["kind"] == "DaemonSet"]
    [container] = publisher["spec"]["template"]["spec"]["containers"]
    environ = {row["name"]: row.get("value", "n1") for row in container["env"]}
    site = load(SITE / "ccpipe.toml", Site, environ=environ)
    assert site.hostname == "n1"
    assert site.telemetry.listen == "0.0.0.0:9400"


def test_site_lists_every_component() -> None:
    """Each of them, active or in a comment, is there; the values are last, so that they apply."""
    text = (SITE / "kustomization.yaml").read_text()
    listed = re.findall(r"^  (?:# )?- \.\./(\S+)$", text, re.MULTILINE)
    made = {
        str(path.parent.relative_to(DIRECTORY)) for path in DIRECTORY.rglob("kustomization.yaml")
    }
    assert set(listed) == made - {"site"}
    assert len(listed) == len(set(listed))
    assert listed[-1] == "values"
    images = {row["name"] for row in KUSTOMIZATION["images"]}
    assert images == {
        container["image"]
        for each in WORKLOADS
        for container in each["spec"]["template"]["spec"]["containers"]
    }


def kustomized(directory: Path) -> list[dict[str, Any]]:
    """Return the objects of which ``kubectl apply -k`` sends a directory's."""
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("kubectl is not on PATH; components need version 1.21 or later")
    done = subprocess.run(
        [kubectl, "kustomize", directory],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return list(yaml.safe_load_all(done.stdout))


def site_copy(directory: Path) -> Path:
    """Return a copy of the site with every component, beside a link to the others."""
    for path in DIRECTORY.iterdir():
        if path != SITE:
            (directory / path.name).symlink_to(path)
    copy = directory / "fritz"
    shutil.copytree(SITE, copy)
    file = copy / "kustomization.yaml"
    file.write_text(re.sub(r"^  # - \.\./", "  - ../", file.read_text(), flags=re.MULTILINE))
    return copy


def test_site_has_values_of_its_file(tmp_path: Path) -> None:
    """Cluster, broker and each store, with the port that its policy opens."""
    site = site_copy(tmp_path)
    values = dict(
        line.split("=", 1)
        for line in (SITE / "site.env").read_text().splitlines()
        if not line.startswith("#")
    )
    changed = {
        key: f"{7000 + i}" if key.endswith("_port") else f"{key}.example.org"
        for i, key in enumerate(values)
    }
    lines = [f"{key}={value}\n" for key, value in changed.items()]
    (site / "site.env").write_text("".join(lines))
    objects = kustomized(site)
    text = json.dumps(objects)
    for key, value in changed.items():
        assert (value if key.endswith("_port") else f'"{value}"') in text, key
    for key in (key for key in changed if f"{key}_port" in changed):
        name = "dashboard" if key == "history" else f"bridge-{key}"
        [policy] = [
            each["spec"]
            for each in objects
            if (each["kind"], each["metadata"]["name"]) == ("NetworkPolicy", name)
        ]
        assert [rule["ports"][0]["port"] for rule in policy["egress"]] == [
            53, 4222, int(changed[f"{key}_port"])
        ]  # fmt: skip
        assert not any("to" in rule for rule in policy["egress"])  # with ../outside-broker
    for each in (each for each in objects if each["kind"] == "ScaledObject"):
        [trigger] = each["spec"]["triggers"]
        assert trigger["metadata"]["account"] == "cluster.example.org"
        assert trigger["metadata"]["stream"] == "stream.example.org"
    assert not [e for e in objects if e["metadata"]["name"].startswith("ccpipe-values")]


def test_site_makes_secrets_of_files(tmp_path: Path, keys: Path) -> None:
    """With the commented lines, of the files that `ccpipe auth init` writes."""
    site = site_copy(tmp_path)
    shutil.copytree(keys, site / "keys")
    for node in ("n01", "n02"):
        shutil.copyfile(site / "keys/nkeys/node/n1.nk", site / f"keys/nkeys/node/{node}.nk")
    for name in ("tokens", "postgres_password"):
        (site / name).write_text("secret")
    file = site / "kustomization.yaml"
    text = file.read_text()
    head, generator, rest = text.partition("# secretGenerator:")
    file.write_text(head + re.sub("^# ", "", generator + rest, flags=re.MULTILINE))
    objects = kustomized(site)
    made = {e["metadata"]["name"] for e in objects if e["kind"] == "Secret"}
    assert {re.sub("-[a-z0-9]{10}$", "", name) for name in made} == SECRETS
    for name in made:
        assert json.dumps(objects).count(f'"{name}"') > 1, name  # it is used by this name


@pytest.mark.parametrize("each", [e for e in OBJECTS if e["kind"] == "ScaledObject"], ids=called)
def test_bridges_are_scaled_by_lag_of_their_consumer(each: dict[str, Any]) -> None:
    """Stream and consumer are those that the bridge creates; KEDA takes texts only."""
    name = each["spec"]["scaleTargetRef"]["name"]
    strategy = named("Deployment", name)["spec"]["strategy"]["type"]
    assert strategy == "RollingUpdate"  # others must not run side by side
    [trigger] = each["spec"]["triggers"]
    recipe = tomllib.loads((ROOT / f"bridges/{name.removeprefix('bridge-')}.toml").read_text())
    assert trigger["metadata"]["consumer"] == recipe["source"]["durable"]
    site = load(SITE / "ccpipe.toml", Site)
    assert trigger["metadata"]["stream"] == stream_name(Subjects.of(site))
    assert trigger["metadata"]["account"] == site.cluster
    assert all(isinstance(value, str) for value in trigger["metadata"].values())


def test_site_matches_output_of_auth_init(keys: Path) -> None:
    """Keys and permissions are made for the same cluster and subjects."""
    written = tomllib.loads((keys / "ccpipe.toml").read_text())
    shipped = tomllib.loads((SITE / "ccpipe.toml").read_text())
    assert shipped["cluster"] == written["cluster"]
    assert shipped["bus"]["subjects"] == written["bus"]["subjects"]


def test_nats_server_accepts_accounts_for_chart(keys: Path, tmp_path: Path) -> None:
    """The page's own command extracts an include file from nats.conf."""
    page = (ROOT / "docs/operations/kubernetes.md").read_text()
    [command] = re.findall(r"^(sed .*nats\.conf) > accounts\.conf$", page, re.MULTILINE)
    cut = subprocess.run(["sh", "-c", command], cwd=keys.parent, capture_output=True, check=True)
    (tmp_path / "accounts.conf").write_bytes(cut.stdout)
    config = tmp_path / "nats.conf"
    config.write_text(f'jetstream {{ store_dir: "{tmp_path}/js" }}\ninclude ./accounts.conf\n')
    checked = subprocess.run(
        [server_program(), "-t", "-c", str(config)], capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stderr
    values = yaml.safe_load((DIRECTORY / "nats-values.yaml").read_text())
    mounted = values["container"]["patch"][0]["value"]["mountPath"]
    included = Path("/etc/nats-config", values["config"]["merge"]["zz$include"])
    assert included.parts[-2:] == (Path(mounted).name, "accounts.conf")
