"""A real QuestDB for the tests."""

import json
import re
from pathlib import Path
from typing import Any

from tests.conftest import eventually, free_port, program
from tests.paths import ROOT
from tests.servers.java import jars
from tests.servers.web import WebServer

CONFIGURATION = """\
http.bind.to=127.0.0.1:{port}
http.min.enabled=false
pg.enabled=false
line.tcp.enabled=false
telemetry.enabled=false
shared.worker.count=1
"""

_SQL = re.compile(r"^```sql\n(.*?);\n```$", re.DOTALL | re.MULTILINE)


class QuestDB(WebServer):
    """A real QuestDB on loopback."""

    health = "/ping"
    start_seconds = 300

    def __init__(self, directory: Path) -> None:
        port = free_port()
        self.url, self.log = f"http://127.0.0.1:{port}", directory / "log"
        [jar] = jars("questdb").iterdir()
        java = [str(program("java", "default-jre-headless")), "-Xmx512m", "-XX:TieredStopAtLevel=1"]
        main = ["-p", str(jar), "-m", "io.questdb/io.questdb.ServerMain"]
        self.command = [*java, *main, "-d", str(directory)]
        (directory / "conf").mkdir(parents=True)
        (directory / "conf/server.conf").write_text(CONFIGURATION.format(port=port))

    def query(self, text: str) -> list[list[Any]]:
        found: list[list[Any]] = json.loads(self.get("/exec", {"query": text})).get("dataset", [])
        return found

    def create_table(self) -> None:
        """Create the table ``metrics`` as the page says, without rows."""
        page = (ROOT / "docs/stores/questdb.md").read_text(encoding="utf-8")
        table, *_ = _SQL.findall(page)
        self.query("DROP TABLE IF EXISTS metrics")
        self.query(table)

    async def until_applied(self) -> None:
        """Wait until the table has what is in the write-ahead log."""
        behind = "SELECT count() FROM wal_tables() WHERE sequencerTxn <> writerTxn"
        await eventually(lambda: self.query(behind) == [[0]])
