"""A real ClickHouse for the tests, as old as Debian's."""

import urllib.parse
import urllib.request
from pathlib import Path

from tests.conftest import free_port, program
from tests.servers.web import WebServer

PASSWORD = "pa ss-word"  # noqa: S105 - of a server on loopback

CONFIGURATION = """\
<yandex>
  <logger><level>warning</level><console>1</console></logger>
  <http_port>{port}</http_port><tcp_port>{native_port}</tcp_port>
  <listen_host>127.0.0.1</listen_host>
  <path>{directory}/data/</path><tmp_path>{directory}/tmp/</tmp_path>
  <users_config>{directory}/users.xml</users_config>
  <default_profile>default</default_profile><default_database>default</default_database>
  <mark_cache_size>67108864</mark_cache_size><timezone>UTC</timezone>
</yandex>
"""
USERS = f"""\
<yandex>
  <profiles><default>
    <allow_experimental_low_cardinality_type>1</allow_experimental_low_cardinality_type>
  </default></profiles>
  <users>
    <default>
      <password>{PASSWORD}</password><networks><ip>127.0.0.1</ip></networks>
      <profile>default</profile><quota>default</quota>
    </default>
  </users>
  <quotas><default></default></quotas>
</yandex>
"""

TABLE = """\
CREATE TABLE metrics (
    name LowCardinality(String), cluster LowCardinality(String), hostname LowCardinality(String),
    type LowCardinality(String), type_id LowCardinality(String),
    stype LowCardinality(String), stype_id LowCardinality(String),
    tags UInt8, field LowCardinality(String), time Int64, value Float64, text String
)
ENGINE = MergeTree PARTITION BY intDiv(time, 86400000000000) ORDER BY (name, hostname, time)
"""
"""A table for version 18, which has no maps: an empty one is the byte 0 in RowBinary."""


class ClickHouse(WebServer):
    """A real clickhouse-server on loopback."""

    health = "/ping"

    def __init__(self, directory: Path) -> None:
        port, native_port = free_port(), free_port()
        login = f"default:{urllib.parse.quote(PASSWORD)}"
        self.native_url = f"clickhouse://{login}@127.0.0.1:{native_port}/default"
        self.url, self.log = f"http://127.0.0.1:{port}", directory / "log"
        self.password_file = directory / "password"
        configuration = directory / "config.xml"
        self.command = [
            str(program("clickhouse-server", "clickhouse-server")),
            f"--config-file={configuration}",
        ]
        directory.mkdir(parents=True)
        configuration.write_text(
            CONFIGURATION.format(port=port, native_port=native_port, directory=directory)
        )
        (directory / "users.xml").write_text(USERS)
        self.password_file.write_text(PASSWORD)

    def query(self, text: str) -> str:
        login = urllib.parse.urlencode({"user": "default", "password": PASSWORD})
        request = urllib.request.Request(f"{self.url}/?{login}", text.encode())  # noqa: S310
        with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310 - our own
            return str(answer.read().decode()).removesuffix("\n")

    def create_table(self) -> None:
        self.query("DROP TABLE IF EXISTS metrics")
        self.query(TABLE)
