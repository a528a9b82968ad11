# ruff: noqa: INP001 - a program, no module
"""A fuzz target for atheris: frames of a NATS server, parsed by the kernel and in Python.

``python fuzz/frames.py -max_total_time=60`` looks for bytes on which they differ, that are parsed
differently in pieces, or that raise.
"""

import sys

import atheris

with atheris.instrument_imports(include=["ccpipe.bus.nats"]):
    from ccpipe.bus.nats.protocol.frames import (
        BrokenFrame,
        Deliveries,
        Delivery,
        split_in_python,
    )
    from ccpipe.bus.nats.protocol.splitter import KERNEL, FrameSplitter


def outcome(split: object, data: bytes) -> object:
    """Return what a splitter makes of bytes, also where it refuses them."""
    assert callable(split)
    try:
        frames, start, needed = split(bytearray(data), 0, len(data))
    except BrokenFrame as error:
        return str(error)
    return [(sid, columns(each) if sid else each) for sid, each in frames], start, needed


def columns(messages: Deliveries) -> list[object]:
    """Return messages one by one and in all columns."""
    return [
        list(messages), messages.sizes, messages.subjects, messages.flawed, messages.replies,
        messages.are_first, messages.joined(), list(messages.without_prefix("a")),
    ]  # fmt: skip


def in_pieces(data: bytes, size: int) -> list[object]:
    """Return messages and control lines, read in pieces, up to what is refused."""
    splitter, found = FrameSplitter(), list[object]()
    try:
        for start in range(0, len(data), size):
            for sid, content in splitter.feed(data[start : start + size]):
                found += [(sid, each) for each in content] if sid else [content]
    except BrokenFrame:
        pass
    return found


def check(data: bytes) -> None:
    """Cut in every way and compare; the first byte is the size of a piece."""
    size, data = (data[0] or 1) if data else 1, data[1:]
    expected = outcome(split_in_python, data)
    if KERNEL is not None:
        assert outcome(KERNEL.split, data) == expected
    pieces = in_pieces(data, size)
    if isinstance(expected, tuple):
        assert in_pieces(data, len(data) + 1) == pieces
    for _, delivery in (each for each in pieces if isinstance(each, tuple)):
        assert isinstance(delivery, Delivery)
        assert delivery.headers is not None
        assert delivery.status is not None
        assert delivery.arrival is not None


if __name__ == "__main__":
    atheris.Setup(sys.argv, check)
    atheris.Fuzz()
