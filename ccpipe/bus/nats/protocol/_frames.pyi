# What ``_frames.pyx`` offers.

from array import array

from ccpipe.bus.nats.protocol.frames import Frame

def split(store: bytearray, start: int, end: int) -> tuple[list[Frame], int, int]: ...
def stored(replies: list[str]) -> tuple[array[int], array[int]] | None: ...
