"""GPUs of processes."""

import sys
from pathlib import Path

from ccpipe.node.gather.jobacct.gpu import Gpus


def test_without_a_driver_nothing_is_loaded(tmp_path: Path) -> None:
    """There is no reading, and no error."""
    before = "pynvml" in sys.modules
    assert Gpus(root=str(tmp_path)).poll() is None
    assert ("pynvml" in sys.modules) is before
