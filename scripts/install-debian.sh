#!/bin/sh
# Install the Debian packages of the real stores and programs that the tests run against, or those
# that are named.
#
# Needs apt and root or sudo; without them it says so and ends well, and the tests that need a
# store are skipped by name with the reason (with CCPIPE_TESTS_STRICT=1 they fail instead).
set -eu

# sysstat and procps measure what the collectors measure. msmtp-mta stands in for a mail daemon,
# which the Grid Engine package would bring otherwise. slurm-wlm-hdf5-plugin brings sh5util. Maven
# brings Java and fetches Kafka and QuestDB (scripts/java_servers.py). chromium shows the dashboard,
# nginx and Apache are proxies in front of it, with Kerberos. fish and zsh complete command lines.
packages="apache2-bin clickhouse-server libapache2-mod-auth-gssapi nginx-light victoria-metrics postgresql gridengine-client msmtp-mta sysstat procps hwloc-nox
          chromium curl fish groff-base hdf5-tools influxdb krb5-admin-server krb5-kdc krb5-user
          libfaketime likwid maven mosquitto openssl prometheus prometheus-node-exporter
          slurm-wlm-hdf5-plugin zsh zstd"
[ $# = 0 ] || packages="$*"

missing=""
for package in $packages; do
    dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing="$missing $package"
done
[ -n "$missing" ] || exit 0

if ! command -v apt-get >/dev/null; then
    echo "no apt here; tests that need$missing are skipped" >&2
    exit 0
fi
if [ "$(id -u)" = 0 ]; then
    sudo=""
elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
    sudo="sudo -n"
else
    echo "neither root nor sudo here; tests that need$missing are skipped" >&2
    exit 0
fi

export DEBIAN_FRONTEND=noninteractive
# A package must not start a service of its own: the tests start what they need on free ports.
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
    printf '#!/bin/sh\nexit 101\n' | $sudo tee "$policy" >/dev/null
    $sudo chmod +x "$policy"
    trap '$sudo rm -f "$policy"' EXIT
fi
$sudo apt-get update -qq
# shellcheck disable=SC2086 # the list is meant to be split
$sudo apt-get install -y -qq --no-install-recommends $missing
