#!/bin/sh
# Create the keys, passwords and data directories of compose.yaml, below ./deploy.
#
#   bridges/compose/prepare.sh CLUSTER [NODE...]
#
# Containers run as you, and other users cannot read these files. If the engine is rootless,
# root in a container is you: CCPIPE_UID=0 CCPIPE_GID=0 bridges/compose/prepare.sh CLUSTER.
# Run it again to add nodes; existing files are kept, and so are your own variables in .env. Without
# ccpipe on this machine, the image creates the keys; COMPOSE=podman-compose if that is what you use.
set -eu
umask 077
cd "$(dirname "$0")/../.."

[ $# -ge 1 ] || { echo "usage: $0 CLUSTER [NODE...]" >&2; exit 64; }
cluster=$1
shift
host=$(uname -n)
host=${host%%.*}
uid=${CCPIPE_UID:-$(id -u)}
gid=${CCPIPE_GID:-$(id -g)}
if [ "$(id -u)" = 0 ] && [ -z "${CCPIPE_UID:-}" ]; then
    uid=10001 gid=10001 # no container needs root
fi

give_away() { # what root creates, to the user of the containers
    [ "$(id -u)" != 0 ] || chown -R "$uid:$gid" deploy
}

secret() {
    od -An -N24 -tx1 /dev/urandom | tr -d ' \n'
}

for store in nats nats-2 nats-3 publisher victoriametrics dashboard grafana \
    cc-backend file hdf5 influxdb jobanalyzer kafka mosquitto parquet postgres prometheus; do
    mkdir -p "deploy/data/$store"
done
mkdir -p deploy/nats deploy/secrets
for secret in dashboard_tokens grafana_password postgres_password influxdb_password influxdb_token; do
    [ -s "deploy/secrets/$secret" ] || secret >"deploy/secrets/$secret"
done
for token in cc_backend_token cc_metric_store_token; do # the store's own, to be put there
    [ -e "deploy/secrets/$token" ] || : >"deploy/secrets/$token"
done
others=$(grep -sv -E '^CCPIPE_(UID|GID|HOSTNAME)=' .env || true)
cat >.env <<END
CCPIPE_UID=$uid
CCPIPE_GID=$gid
CCPIPE_HOSTNAME=$host
END
[ -z "$others" ] || printf '%s\n' "$others" >>.env

nodes="--node $host"
for node in "$@"; do
    nodes="$nodes --node $node"
done
# shellcheck disable=SC2086 # node names contain no blanks
if command -v ccpipe >/dev/null; then
    ccpipe auth init deploy/keys --cluster "$cluster" $nodes
else
    give_away
    # shellcheck disable=SC2086 # it may be two words
    ${COMPOSE:-docker compose} --profile setup run --rm --no-deps keys auth init /deploy/keys --cluster "$cluster" $nodes
fi
# Brokers mount the directory: a mounted file would stay the old one when it is replaced.
cp deploy/keys/nats.conf deploy/nats/nats.conf
[ -s deploy/nats/cluster.conf ] || {
    password=$(secret)
    cat >deploy/nats/cluster.conf <<END
# For bridges/compose/three-brokers.yaml.
include "nats.conf"
server_name: \$SERVER_NAME
cluster {
  name: "$cluster"
  listen: "0.0.0.0:6222"
  authorization { user: route, password: "$password" }
  routes: [
    "nats://route:$password@nats:6222"
    "nats://route:$password@nats-2:6222"
    "nats://route:$password@nats-3:6222"
  ]
}
END
}
give_away
echo "next: docker compose up --detach; the token of the dashboard and the password of Grafana's admin are in deploy/secrets" >&2
