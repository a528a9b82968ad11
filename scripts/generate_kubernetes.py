#!/usr/bin/env python3
"""Write bridges/kubernetes: a component of kustomize for each recipe, and the dashboard.

    scripts/generate_kubernetes.py [DIRECTORY]  # a test compares the files

The table BRIDGES has the differences between bridges. The component `values` puts the values of a
site's site.env where they belong.
"""

import hashlib
import sys
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import yaml

ROOT = Path(__file__).parents[1]
DIRECTORY = ROOT / "bridges/kubernetes"

TELEMETRY_PORT = 9400
DASHBOARD_PORT = 8770
HISTORY_PORT = 8428
NATS_PORT = 4222
STORE_RULE = 2
"""Place of the store among the rules of a NetworkPolicy, after names and the broker."""
USER = 10001
"""The user of the image."""
LAG = 1000
"""Unread messages for each bridge above which another one is started."""
MAX_BRIDGES = 4
ROLLING = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
"""Complete: without the numbers `kubectl apply` says "configured" each time."""


class Bridge(NamedTuple):
    """The settings of a bridge other than its recipe."""

    environ: Mapping[str, str] = {}
    port: int | None = None
    """Of the store, which the bridge may then reach."""
    scales: bool = False
    """Whether several may share the work: no translator needs to see all messages."""
    volume: str = ""
    """Where it keeps what must outlive it."""
    secrets: tuple[str, ...] = ()
    """Keys of the Secret ccpipe-stores."""


BRIDGES = {
    "cc-to-sonar": Bridge(),
    "clustercockpit": Bridge(),
    "from-kafka": Bridge({"CCPIPE_SOURCE__BROKER__SERVERS": '["kafka:9092"]'}, 9092),
    "from-mqtt": Bridge({"CCPIPE_SOURCE__BROKER__URL": "mqtt://mosquitto:1883"}, 1883),
    "influxdb": Bridge({"CCPIPE_SINK__URL": "http://influxdb:8086"}, 8086, scales=True),
    "jobanalyzer": Bridge({"CCPIPE_SINK__DIR": "/data"}, volume="/data"),
    "kafka": Bridge({"CCPIPE_SINK__BROKER__SERVERS": '["kafka:9092"]'}, 9092, scales=True),
    "mqtt": Bridge({"CCPIPE_SINK__BROKER__URL": "mqtt://mosquitto:1883"}, 1883),
    "parquet": Bridge({"CCPIPE_SINK__DIR": "/data"}, volume="/data"),
    "postgres": Bridge(
        {
            "CCPIPE_SINK__URL": "postgresql://ccpipe@postgres:5432/ccpipe",
            "CCPIPE_SINK__PASSWORD_FILE": "/etc/ccpipe/stores/postgres_password",
        },
        5432,
        scales=True,
        secrets=("postgres_password",),
    ),
    "prometheus": Bridge({"CCPIPE_SINK__URL": "http://prometheus:9090"}, 9090),
    "sonar-to-cc": Bridge(volume="/var/lib/ccpipe"),
    "victoriametrics": Bridge(
        {"CCPIPE_SINK__URL": "http://victoriametrics:8428"}, 8428, scales=True
    ),
}


def objects(name: str, bridge: Bridge) -> list[dict[str, Any]]:
    """Return the objects of one bridge."""
    recipe = (ROOT / f"bridges/{name}.toml").read_text()
    digest = hashlib.sha256(recipe.encode()).hexdigest()[:16]
    component = f"bridge-{name}"
    # Where a translator must see all messages, or a volume is for one, no two run side by side.
    strategy = ROLLING if bridge.scales else {"type": "Recreate"}
    # A recipe that is changed is a new pod.
    annotations = {"ccpipe/recipe": digest, **_scraped()}
    pod = _pod(_bridge_container(name, bridge), _volumes(name, bridge))
    ports = [bridge.port] if bridge.port else []
    made = [
        _object("v1", "ConfigMap", f"recipe-{name}", component, data={f"{name}.toml": recipe}),
        _deployment(component, pod, strategy, annotations),
        _network_policy(component, TELEMETRY_PORT, ports),
    ]
    if bridge.volume:
        claim = {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "10Gi"}},
        }
        made.append(_object("v1", "PersistentVolumeClaim", component, component, spec=claim))
    return made


def dashboard() -> list[dict[str, Any]]:
    """Return the objects of the dashboard, which reads the bus as a viewer."""
    service = {
        "selector": _labels("dashboard"),
        "ports": [{"name": "http", "port": 80, "targetPort": "http"}],
    }
    pod = _pod(_dashboard_container(), _dashboard_volumes())
    return [
        _deployment("dashboard", pod, ROLLING, {}),
        _object("v1", "Service", "dashboard", "dashboard", spec=service),
        _network_policy("dashboard", DASHBOARD_PORT, [HISTORY_PORT]),
    ]


def _dashboard_container() -> dict[str, Any]:
    environ = {
        "CCPIPE_BUS__NKEY_FILE": "/etc/ccpipe/keys/viewer.nk",
        "CCPIPE_BUS__JETSTREAM": "false",  # a viewer may not read streams
        "CCPIPE_DASHBOARD__LISTEN": f"0.0.0.0:{DASHBOARD_PORT}",
        "CCPIPE_DASHBOARD__TOKEN_FILE": "/etc/ccpipe/dashboard/tokens",
        "CCPIPE_HISTORY__STORE": f"http://victoriametrics:{HISTORY_PORT}",
        "XDG_STATE_HOME": "/tmp",  # noqa: S108 - an emptyDir of its own
    }
    return {
        "name": "dashboard",
        "image": "ccpipe",
        "args": ["dashboard"],
        "env": [{"name": key, "value": value} for key, value in environ.items()],
        "ports": [{"name": "http", "containerPort": DASHBOARD_PORT}],
        "startupProbe": _probe("/health", "http", failureThreshold=30, periodSeconds=2),
        "livenessProbe": _probe("/health", "http", failureThreshold=3, periodSeconds=20),
        "readinessProbe": _probe("/ready", "http", failureThreshold=3, periodSeconds=10),
        "resources": {
            "requests": {"cpu": "100m", "memory": "256Mi"},
            "limits": {"memory": "1Gi"},
        },
        "securityContext": _restricted(),
        "volumeMounts": [
            {
                "name": "site", "mountPath": "/etc/ccpipe/ccpipe.toml", "subPath": "ccpipe.toml",
                "readOnly": True,
            },
            {"name": "keys", "mountPath": "/etc/ccpipe/keys", "readOnly": True},
            {"name": "tokens", "mountPath": "/etc/ccpipe/dashboard", "readOnly": True},
            {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108
        ],
    }  # fmt: skip


def _dashboard_volumes() -> list[dict[str, Any]]:
    return [
        {"name": "site", "configMap": {"name": "ccpipe-site"}},
        {"name": "keys", "secret": {"secretName": "ccpipe-viewer-key", "defaultMode": 0o440}},
        {"name": "tokens", "secret": {"secretName": "ccpipe-dashboard", "defaultMode": 0o440}},
        {"name": "tmp", "emptyDir": {"sizeLimit": "512Mi"}},  # the index of jobs
    ]


def _restricted() -> dict[str, Any]:
    """Return what the Pod Security level `restricted` requires of a container."""
    return {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def _labels(component: str) -> dict[str, str]:
    return {"app.kubernetes.io/name": "ccpipe", "app.kubernetes.io/component": component}


def _object(api: str, kind: str, name: str, component: str, **rest: Any) -> dict[str, Any]:
    metadata = {"name": name, "labels": _labels(component)}
    return {"apiVersion": api, "kind": kind, "metadata": metadata, **rest}


def _deployment(
    component: str, pod: dict[str, Any], strategy: Mapping[str, Any], annotations: Mapping[str, str]
) -> dict[str, Any]:
    metadata: dict[str, Any] = {"labels": _labels(component)}
    if annotations:
        metadata["annotations"] = dict(annotations)
    spec = {
        "replicas": 1,
        "strategy": dict(strategy),
        "selector": {"matchLabels": _labels(component)},
        "template": {"metadata": metadata, "spec": pod},
    }
    return _object("apps/v1", "Deployment", component, component, spec=spec)


def _pod(container: dict[str, Any], volumes: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 60,
        "securityContext": {
            "runAsNonRoot": True, "runAsUser": USER, "runAsGroup": USER, "fsGroup": USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [container],
        "volumes": volumes,
    }  # fmt: skip


def _scraped() -> dict[str, str]:
    return {"prometheus.io/scrape": "true", "prometheus.io/port": f"{TELEMETRY_PORT}"}


def _bridge_container(name: str, bridge: Bridge) -> dict[str, Any]:
    environ = {
        "CCPIPE_BUS__NKEY_FILE": "/etc/ccpipe/keys/bridge.nk",
        "CCPIPE_TELEMETRY__LISTEN": f"0.0.0.0:{TELEMETRY_PORT}",
        "XDG_STATE_HOME": "/tmp",  # noqa: S108 - an emptyDir of its own
        **bridge.environ,
    }
    mounts: list[dict[str, Any]] = [
        {"name": "site", "mountPath": "/etc/ccpipe/ccpipe.toml", "subPath": "ccpipe.toml"},
        {"name": "recipe", "mountPath": "/etc/ccpipe/bridges"},
        {"name": "keys", "mountPath": "/etc/ccpipe/keys"},
        {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108
    ]
    if bridge.secrets:
        mounts.append({"name": "stores", "mountPath": "/etc/ccpipe/stores"})
    if bridge.volume:
        mounts.append({"name": "data", "mountPath": bridge.volume})
    for mount in mounts[:3]:
        mount["readOnly"] = True
    return {
        "name": "bridge",
        "image": "ccpipe",
        "args": ["bridge", f"/etc/ccpipe/bridges/{name}.toml"],
        "env": [{"name": key, "value": value} for key, value in environ.items()],
        "ports": [{"name": "telemetry", "containerPort": TELEMETRY_PORT}],
        "startupProbe": _probe("/health", "telemetry", failureThreshold=30, periodSeconds=2),
        "livenessProbe": _probe("/health", "telemetry", failureThreshold=3, periodSeconds=20),
        "readinessProbe": _probe("/ready", "telemetry", failureThreshold=3, periodSeconds=10),
        "resources": {
            "requests": {"cpu": "100m", "memory": "256Mi"},
            "limits": {"memory": "1Gi"},
        },
        "securityContext": _restricted(),
        "volumeMounts": mounts,
    }


def _probe(path: str, port: str, **often: int) -> dict[str, Any]:
    return {"httpGet": {"path": path, "port": port}, "timeoutSeconds": 3, **often}


def _volumes(name: str, bridge: Bridge) -> list[dict[str, Any]]:
    volumes: list[dict[str, Any]] = [
        {"name": "site", "configMap": {"name": "ccpipe-site"}},
        {"name": "recipe", "configMap": {"name": f"recipe-{name}"}},
        {"name": "keys", "secret": {"secretName": "ccpipe-bridge-key", "defaultMode": 0o440}},
        {"name": "tmp", "emptyDir": {"sizeLimit": "64Mi"}},
    ]
    if bridge.secrets:
        items = [{"key": key, "path": key} for key in bridge.secrets]
        secret = {"secretName": "ccpipe-stores", "defaultMode": 0o440, "items": items}
        volumes.append({"name": "stores", "secret": secret})
    if bridge.volume:
        claim = {"claimName": f"bridge-{name}"}
        volumes.append({"name": "data", "persistentVolumeClaim": claim})
    return volumes


def _network_policy(component: str, port: int, stores: Sequence[int]) -> dict[str, Any]:
    """It answers on its port, and reaches names, the broker and its stores."""
    broker = {"podSelector": {"matchLabels": {"app.kubernetes.io/name": "nats"}}}
    egress: list[dict[str, Any]] = [
        {"ports": [{"port": 53, "protocol": "UDP"}, {"port": 53, "protocol": "TCP"}]},
        {"to": [broker], "ports": [{"port": NATS_PORT, "protocol": "TCP"}]},
    ]
    egress += [{"ports": [{"port": store, "protocol": "TCP"}]} for store in stores]
    spec = {
        "podSelector": {"matchLabels": _labels(component)},
        "policyTypes": ["Ingress", "Egress"],
        "ingress": [{"ports": [{"port": port, "protocol": "TCP"}]}],
        "egress": egress,
    }
    return _object("networking.k8s.io/v1", "NetworkPolicy", component, component, spec=spec)


def scaled(name: str) -> dict[str, Any]:
    """Return KEDA's object that starts more bridges when a consumer falls behind."""
    durable = tomllib.loads((ROOT / f"bridges/{name}.toml").read_text())["source"]["durable"]
    trigger = {
        "natsServerMonitoringEndpoint": "nats-headless.ccpipe.svc:8222",
        "account": "local",
        "stream": "ccpipe-local",
        "consumer": durable,
        "lagThreshold": f"{LAG}",
    }
    spec = {
        "scaleTargetRef": {"name": f"bridge-{name}"},
        "minReplicaCount": 1,
        "maxReplicaCount": MAX_BRIDGES,
        "cooldownPeriod": 300,
        "triggers": [{"type": "nats-jetstream", "metadata": trigger}],
    }
    component = f"bridge-{name}"
    return _object("keda.sh/v1alpha1", "ScaledObject", component, component, spec=spec)


def values() -> dict[str, Any]:
    """Return the component that takes the values of a site's ConfigMap ccpipe-values."""
    metadata = "spec.triggers.0.metadata"
    scaled = {"kind": "ScaledObject"}
    replacements = [
        _replacement("cluster", scaled, f"{metadata}.account"),
        _replacement("stream", scaled, f"{metadata}.stream"),
        _replacement("broker_monitoring", scaled, f"{metadata}.natsServerMonitoringEndpoint"),
    ]
    stores = {name: next(iter(bridge.environ)) for name, bridge in BRIDGES.items() if bridge.port}
    for key, variable in {**stores, "history": "CCPIPE_HISTORY__STORE"}.items():
        name, container = (
            ("dashboard", "dashboard") if key == "history" else (f"bridge-{key}", "bridge")
        )
        value = f"spec.template.spec.containers.[name={container}].env.[name={variable}].value"
        policy = {"kind": "NetworkPolicy", "name": name}
        replacements += [
            _replacement(key, {"kind": "Deployment", "name": name}, value),
            _replacement(f"{key}_port", policy, f"spec.egress.{STORE_RULE}.ports.0.port"),
        ]
    return _component(replacements=replacements)


def _replacement(key: str, select: Mapping[str, str], field: str) -> dict[str, Any]:
    source = {"kind": "ConfigMap", "name": "ccpipe-values", "fieldPath": f"data.{key}"}
    return {"source": source, "targets": [{"select": dict(select), "fieldPaths": [field]}]}


def _component(**rest: Any) -> dict[str, Any]:
    return {"apiVersion": "kustomize.config.k8s.io/v1alpha1", "kind": "Component", **rest}


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002
        """Write everything out."""
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)

HEAD = "# Written by scripts/generate_kubernetes.py.\n"


def _yaml(documents: list[dict[str, Any]]) -> str:
    return HEAD + yaml.dump_all(documents, Dumper=_Dumper, sort_keys=False, width=100)


def files() -> dict[str, list[dict[str, Any]]]:
    """Return the documents of each file, by its path in the directory."""
    made = {"base/dashboard.yaml": dashboard(), "values/kustomization.yaml": [values()]}
    for name, bridge in BRIDGES.items():
        made[f"bridges/{name}/kustomization.yaml"] = [_component(resources=["bridge.yaml"])]
        made[f"bridges/{name}/bridge.yaml"] = objects(name, bridge)
        if bridge.scales:
            place = f"bridges/{name}/autoscaling"
            made[f"{place}/kustomization.yaml"] = [_component(resources=["scaledobject.yaml"])]
            made[f"{place}/scaledobject.yaml"] = [scaled(name)]
    return made


if __name__ == "__main__":
    directory = Path(sys.argv[1]) if sys.argv[1:] else DIRECTORY
    for path, documents in files().items():
        file = directory / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(_yaml(documents))
