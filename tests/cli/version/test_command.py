"""``ccpipe version``: what a bug report needs."""

import json
import platform
import subprocess
import sys
from importlib import metadata

from ccpipe import __version__
from ccpipe.cli.version import versions
from tests.cli.command import ccpipe


def test_it_names_ccpipe_the_kernel_python_and_the_libraries() -> None:
    """Everything whose version matters is in the table."""
    shown = ccpipe("version")
    assert shown.code == 0
    rows = dict(line.split(None, 1) for line in shown.out.splitlines()[1:])
    assert rows["ccpipe"] == __version__
    assert rows["kernel"] == versions.kernel()
    assert rows["python"].startswith(platform.python_version())
    assert rows["pyarrow"] == metadata.version("pyarrow")
    assert "pytest" not in rows


def test_json_says_the_same() -> None:
    """Programs get the same facts."""
    shown = json.loads(ccpipe("version", "-o", "json").out)
    assert shown["ccpipe"] == __version__
    assert shown["libraries"]["msgspec"] == metadata.version("msgspec")


def test_it_imports_neither_broker_nor_pipeline() -> None:
    """Whoever asks for versions may have trouble with just those."""
    heavy = (
        "cyclopts",
        "asyncio",
        "nats",
        "ssl",
        "rich.console",
        "numpy",
        "pyarrow",
        "ccpipe.pipeline",
    )
    program = (
        "import sys; sys.argv = ['ccpipe', 'version']\n"
        "from ccpipe.cli import main\n"
        "try: main()\n"
        f"finally: print([m for m in {heavy} if m in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert done.stderr == b"[]\n"
