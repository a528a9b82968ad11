"""Critical errors that NVIDIA's driver reports of a card (Xid), while NVML is in use.

Source: NVML API reference, *Event Handling Methods*; *XID Errors*.
"""

from collections.abc import Iterator
from typing import Any

from ccpipe.node.linux.nvml import Note, supported
from ccpipe.node.sampling.metrics import Metric

_CARD = ("accelerator",)
METRICS = (
    Metric("nv_xid_errors", "", int, "critical errors (Xid) since the publisher started", _CARD),
    Metric("nv_last_xid", "", int, "number of the last one, if there was one", _CARD),
)

_MAX_EVENTS = 1000  # read in one sample


class XidErrors:
    """The errors of each card so far."""

    def __init__(self) -> None:
        self._sets: dict[str, Any] = {}  # None of cards that report no errors
        self._known: dict[str, tuple[int, int]] = {}  # how many, and the last one

    def free(self, nvml: Any) -> None:
        """Stop waiting for errors, as must be done before the library is shut down."""
        for events in filter(None, self._sets.values()):
            nvml.nvmlEventSetFree(events)
        self._sets.clear()

    def read(self, nvml: Any, card: Any, address: str, note: Note) -> Iterator[tuple[str, float]]:
        def xid(nvml: Any, card: Any) -> Iterator[tuple[str, float]]:
            if address not in self._sets:
                self._sets[address] = None  # if it fails, the card is not asked again
                self._sets[address] = _registered(nvml, card)
            if self._sets[address] is None:
                return
            count, last = self._known.get(address, (0, 0))
            for number in _events(nvml, self._sets[address]):
                count, last = count + 1, number
                self._known[address] = count, last
            yield "nv_xid_errors", count
            if count:
                yield "nv_last_xid", last

        return supported(nvml, xid, card, note)


def _registered(nvml: Any, card: Any) -> Any:
    events = nvml.nvmlEventSetCreate()
    try:
        nvml.nvmlDeviceRegisterEvents(card, nvml.nvmlEventTypeXidCriticalError, events)
    except nvml.NVMLError:
        nvml.nvmlEventSetFree(events)
        raise
    return events


def _events(nvml: Any, events: Any) -> Iterator[int]:
    for _ in range(_MAX_EVENTS):
        try:
            yield int(nvml.nvmlEventSetWait_v2(events, 0).eventData)
        except nvml.NVMLError as error:
            if error.value != nvml.NVML_ERROR_TIMEOUT:
                raise
            return  # no more
