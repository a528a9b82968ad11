"""Xid errors, on a library made of Python."""

from pathlib import Path

from ccpipe.node.collectors.gpu.nvidia import Nvidia
from tests.node.collectors.gpu.conftest import Load
from tests.node.collectors.gpu.test_nvidia import FIRST, SECOND, full, of
from tests.node.conftest import reported

NAMES = {"nv_xid_errors", "nv_last_xid"}


def test_errors_are_counted_and_the_last_one_is_named(load: Load, tmp_path: Path) -> None:
    """Also those before the library was initialised anew; a card without them reports none."""
    card = full(Xid=[])
    library = load(card, full(SECOND))
    collector = Nvidia(root=str(tmp_path))
    told = []
    for slot, arrived in enumerate(([], [48], [63, 94], [])):
        card.answers["Xid"] += arrived
        values = reported(collector.collect(slot))
        told.append({name: of(values, FIRST)[name] for name in NAMES & of(values, FIRST).keys()})
        assert not NAMES & of(values, SECOND).keys()
        assert len(library.sets) == 1
        if slot == 2:
            collector._driver.reset()
            assert library.sets == {}
    assert told == [
        {"nv_xid_errors": 0},
        {"nv_xid_errors": 1, "nv_last_xid": 48},
        {"nv_xid_errors": 3, "nv_last_xid": 94},
        {"nv_xid_errors": 3, "nv_last_xid": 94},
    ]
