"""Stream sequences and storage times parsed from many reply subjects, as columns."""

from array import array
from collections.abc import Callable

from ccpipe.bus.nats.protocol.frames import stored_as
from ccpipe.bus.nats.protocol.splitter import KERNEL


def stored_in_python(replies: list[str]) -> "tuple[array[int], array[int]] | None":
    """Return each message's stream sequence and time of storage; see ``stored_as``.

    None if one of the subjects was chosen by a publisher.
    """
    numbers, times = array("q"), array("q")
    for found in map(stored_as, replies):
        if found is None:
            return None
        numbers.append(found[0])
        times.append(found[1])
    return numbers, times


stored: "Callable[[list[str]], tuple[array[int], array[int]] | None]"
stored = stored_in_python if KERNEL is None else KERNEL.stored
