"""For contrast: Telegraf as the bridge, configured according to its documentation."""

import os
import shutil
from pathlib import Path

CORE = 'subjects = ["c.metrics"]\njetstream_subjects = []'
JETSTREAM = 'subjects = []\njetstream_subjects = ["c.metrics"]'


def telegraf() -> str:
    """Return the program, from ``CCPIPE_TELEGRAF`` or ``PATH``; empty if missing.

    ``go build -tags custom,inputs.nats_consumer,outputs.file,parsers.influx,serializers.influx
    ./cmd/telegraf`` builds one.
    """
    return os.environ.get("CCPIPE_TELEGRAF") or shutil.which("telegraf") or ""


def write_configuration(directory: Path, url: str, stored: Path, consumes: str) -> Path:
    path = directory / "telegraf.conf"
    path.write_text(
        f"""
        [agent]
        omit_hostname = true
        flush_interval = "1s"
        [[inputs.nats_consumer]]
        servers = ["{url}"]
        {consumes}
        data_format = "influx"
        [[outputs.file]]
        files = ["{stored}"]
        data_format = "influx"
        """
    )
    return path
