"""A site's keys, and the nats-server configuration that gives each key its permissions.

Every user is an nkey: the server knows public keys only; a seed never leaves its file.
"""

import json
import re
import secrets
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ccpipe.atomic_file import write_private
from ccpipe.bus.nats.credentials import public_nkey
from ccpipe.bus.subjects import escape
from ccpipe.config import read_secret
from ccpipe.errors import ConfigError, CreateError, MissingExtra

DOMAINS = "domains"
"""The file that lists JetStream domains that bridges may use."""

ROLES = ("node", "bridge", "operator", "viewer")

SUBJECTS: Mapping[str, str | dict[str, str]] = {
    "metrics": "{cluster}.metrics.{hostname}",
    "log": "{cluster}.log.{name}.{hostname}",
    "sonar": "{cluster}.sonar.{name}.{hostname}",
    "events": {"*": "{cluster}.events.{name}.{hostname}", "job": "{cluster}.events.job"},
}
"""Subjects that name the node, so that a broker can restrict each node to its own name.

Bridges of schedulers publish job events, and ClusterCockpit subscribes to them by this name.
"""

OWN = ("metrics", "events.*", "log.*", "sonar.*")
"""Subjects of one node, between the cluster's name and the node's."""

HEARD = ("metrics", "metrics.*", "events.>", "log.>", "sonar.>")
"""Subjects that bridges and viewers may subscribe to, below the cluster's name."""

STREAM_NAMES = "$JS.API.STREAM.NAMES"
"""A node's question whether there is a stream yet."""

MAPPED_STREAM_NAMES = "ccpipe.streams"
"""The question's name in the nodes' account, whose own JetStream would answer that it is off."""

API = (
    "STREAM.NAMES",
    "STREAM.LIST",
    "STREAM.INFO.*",
    "STREAM.CREATE.*",
    "STREAM.UPDATE.*",
    "STREAM.MSG.GET.*",
    "STREAM.MSG.DELETE.*",  # of replayed dead letters
    "CONSUMER.>",
)
"""JetStream requests of bridges and of the commands that share their keys."""

CONFIGURATION = """\
# nats-server for the cluster {cluster}, written by `ccpipe auth init`. Run it again to add nodes;
# delete the seed of a node and run it again to remove one; then `nats-server --signal reload`.
# It contains public keys only.

server_name: "ccpipe"
listen: "0.0.0.0:4222"
max_payload: 1MB

jetstream {{
  store_dir: "/var/lib/nats"
  # Maximum loss in a power failure; "always" needs a disk write for each message: see
  # docs/operations/nats.md.
  sync_interval: "10s"
  # Without it, a server before 2.12 lets any node delete messages (docs/operations/security.md).
  strict: true
}}

# TLS prevents others on the network from reading or changing messages: docs/operations/security.md
# tls {{ cert_file: "/etc/nats/server.pem", key_file: "/etc/nats/server.key" }}

# For probes and `curl`, on this machine only. It reveals no secrets.
http: "127.0.0.1:8222"

# A user of JetStream can have a stored message delivered on any subject of the account. Control
# requests are therefore in an account without JetStream. Data of nodes reaches the other
# account as requests, whose answers alone come back; the broker replaces their reply subjects, so
# that a node cannot have an answer published there on a subject that it chose.
accounts {{
  SYS {{ users: [] }}
  {account} {{
    jetstream: enabled
    exports: [
{exports}
    ]
    users: [
{users}
    ]
  }}
  {nodes} {{
    mappings: {{ "{question}": "{mapped}" }}
    imports: [
{imports}
    ]
    users: [
{controlled}
    ]
  }}
}}
system_account: SYS
"""

IN_NODES = ("node", "operator")
"""Roles in the nodes' account."""

SITE = """\
# For every node and bridge of {cluster}, written by `ccpipe auth init`.
cluster = {quoted}

[bus]
servers = ["nats://BROKER:4222"] # tls:// where the broker has a certificate
nkey_file = "/etc/ccpipe/key.nk" # the seed of this node or bridge, mode 0600

[bus.subjects]
{subjects}
"""


class User(NamedTuple):
    """A user of the broker."""

    role: str
    name: str
    key: str
    """The public nkey."""


def missing_seeds(directory: Path, role: str, names: Iterable[str]) -> list[Path]:
    """Return the files that ``ensure_keys`` would create."""
    paths = [directory / "nkeys" / role / f"{escape(name)}.nk" for name in names]
    return [path for path in paths if not path.exists()]


def ensure_keys(directory: Path, role: str, names: Iterable[str]) -> None:
    """Create a seed for each name without one; raises MissingExtra without nkeys."""
    try:
        import nkeys
    except ImportError:
        raise MissingExtra("nkeys", "nkeys") from None
    (directory / "nkeys" / role).mkdir(parents=True, exist_ok=True, mode=0o700)
    for path in missing_seeds(directory, role, names):
        seed = nkeys.encode_seed(secrets.token_bytes(32), nkeys.PREFIX_BYTE_USER)
        write_private(path, f"{seed.decode()}\n")


def users_of(directory: Path) -> list[User]:
    return [
        User(role, path.stem, public_nkey(str(path), read_secret("seed", str(path))))
        for role in ROLES
        for path in sorted((directory / "nkeys" / role).glob("*.nk"))
    ]


def ensure_domains(directory: Path, names: Iterable[str]) -> None:
    """Add JetStream domains of leaf nodes to the file ``domains``; raises ConfigError."""
    for name in names:
        if unfit := re.search(r"[^\w-]", name):
            raise ConfigError(f"domain: {name!r}: {unfit[0]!r} cannot be in such a name")
    known = domains_of(directory)
    if new := [name for name in dict.fromkeys(names) if name not in known]:
        write_private(directory / DOMAINS, "".join(f"{name}\n" for name in [*known, *new]))


def domains_of(directory: Path) -> list[str]:
    path = directory / DOMAINS
    return path.read_text(encoding="utf-8").split() if path.exists() else []


def server_configuration(cluster: str, users: Iterable[User], domains: Sequence[str] = ()) -> str:
    """Return nats-server's configuration: each user may do what its role requires and no more."""
    token = escape(cluster)
    account, nodes = json.dumps(token), json.dumps(f"{token}-nodes")
    subjects = [*(f"{token}.{subject}.*" for subject in OWN), STREAM_NAMES]
    exports = [f"      {{ service: {json.dumps(each)}, accounts: [{nodes}] }}" for each in subjects]
    imports = [
        f"      {{ service: {{ account: {account}, subject: {json.dumps(each)} }}"
        + (f', to: "{MAPPED_STREAM_NAMES}" }}' if each == STREAM_NAMES else " }")
        for each in subjects
    ]
    texts: dict[bool, list[str]] = {True: [], False: []}
    for user in users:
        allowed = json.dumps(permissions(user, token, domains))
        texts[user.role in IN_NODES].append(
            f"      # {user.role} {user.name}\n      {{ nkey: {user.key}, permissions: {allowed} }}"
        )
    return CONFIGURATION.format(
        cluster=token,
        account=account,
        nodes=nodes,
        question=STREAM_NAMES,
        mapped=MAPPED_STREAM_NAMES,
        exports="\n".join(exports),
        imports="\n".join(imports),
        users="\n".join(texts[False]),
        controlled="\n".join(texts[True]),
    )


def permissions(user: User, cluster: str, domains: Sequence[str] = ()) -> dict[str, Any]:
    inbox = f"_INBOX.{user.key}.>"
    heard = [f"{cluster}.{subject}" for subject in HEARD]
    # The dashboard and `ccpipe top` subscribe to all clusters: to dead letters as well, which
    # bridges could read from the streams anyway.
    any_cluster = [f"*.{subject}" for subject in (*HEARD, "dead")]
    if user.role == "node":
        return {
            "publish": [
                *(f"{cluster}.{subject}.{user.name}" for subject in OWN),
                STREAM_NAMES,  # checked before the mapping by servers up to 2.12 …
                MAPPED_STREAM_NAMES,  # … and after it by newer ones
            ],
            "subscribe": [inbox, f"{cluster}.control.*"],
            "allow_responses": True,
        }
    if user.role == "bridge":
        prefixes = ["$JS", *(f"$JS.{domain}" for domain in domains)]
        return {
            "publish": [
                *(f"{prefix}.API.{request}" for prefix in prefixes for request in API),
                "$JS.ACK.>",
                "$JS.FC.>",  # of readers of a whole stream, such as `ccpipe tail`
                f"{cluster}.dead",
                f"{cluster}.replicas.*",
                *heard,
            ],
            "subscribe": [inbox, *any_cluster],
        }
    if user.role == "operator":
        return {
            "publish": [f"{cluster}.control.get", f"{cluster}.control.put"],
            "subscribe": [inbox],
        }
    return {
        "publish": {"deny": ">"},
        # `ccpipe tail` subscribes to control requests too; none reach this account.
        "subscribe": [*any_cluster, f"{cluster}.control.*"],
    }


def site_configuration(cluster: str) -> str:
    plain = [
        f"{key} = {json.dumps(text)}" for key, text in SUBJECTS.items() if isinstance(text, str)
    ]
    events = SUBJECTS["events"]
    assert isinstance(events, dict)
    classes = [f"{json.dumps(key)} = {json.dumps(text)}" for key, text in events.items()]
    lines = [*plain, "", "[bus.subjects.events]", *classes]
    return SITE.format(
        cluster=escape(cluster), quoted=json.dumps(cluster), subjects="\n".join(lines)
    )


def write_site(directory: Path, cluster: str) -> list[User]:
    """Write both configurations for all users that have a seed; an existing site file is kept.

    Raises ConfigError if a seed cannot be read, and CreateError if a file cannot be written.
    """
    users = users_of(directory)
    try:
        configuration = server_configuration(cluster, users, domains_of(directory))
        write_private(directory / "nats.conf", configuration)
        site = directory / "ccpipe.toml"
        if not site.exists():
            write_private(site, site_configuration(cluster))
    except OSError as error:
        raise CreateError(f"{error.filename or directory}: {error.strerror}") from None
    return users
