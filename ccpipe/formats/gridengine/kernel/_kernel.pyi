# The interface of ``_kernel.pyx``.

from collections.abc import Collection

from ccpipe.formats.gridengine.columns import KernelLayout

def scan(
    payload: bytes, layout: KernelLayout, line: int, offset: int
) -> tuple[int, int, list[tuple[int, list[bytes | None]]], list[tuple[int, int, int, int]]]: ...
def search(payload: bytes, jobs: Collection[int]) -> tuple[list[int], list[int], int]: ...
