"""What the scripts would write now."""

import json
import subprocess
import sys

from tests.paths import ROOT


def pages(script: str) -> dict[str, str]:
    code = (
        f"import json, {script} as g;"
        "print(json.dumps({path.name: text for path, text in g.pages().items()}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT / "scripts",
        capture_output=True,
        text=True,
        check=True,
    )
    found: dict[str, str] = json.loads(done.stdout)
    return found
