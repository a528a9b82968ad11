# What ``_frames.pyx`` offers.

from ccpipe.bus.nats.protocol.frames import Frame

def split(store: bytearray, start: int, end: int) -> tuple[list[Frame], int, int]: ...
