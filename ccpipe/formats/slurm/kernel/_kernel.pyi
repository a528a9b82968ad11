# The interface of ``_kernel.pyx``.

from collections.abc import Callable, Mapping, Sequence
from typing import Any

class Value:
    def __init__(self, value: object) -> None: ...

class Cells:
    def __init__(self, place: int, read: Callable[[str], Any] | None) -> None: ...

class Memo(Cells):
    def __init__(self, place: int, memo: Mapping[str, Any]) -> None: ...

class Seconds(Cells): ...
class Volume(Cells): ...

class Time(Cells):
    def __init__(
        self, place: int, read: Callable[[str], Any], hours: Mapping[str, int]
    ) -> None: ...

class Id:
    def __init__(
        self, places: Sequence[int], read: Callable[..., Any], kind: Callable[..., Any]
    ) -> None: ...

class Rows:
    def __init__(
        self,
        record: Callable[..., Any],
        columns: Sequence[Value | Cells | Id],
        width: int,
        delimiter: int,
    ) -> None: ...
    def read(self, payload: bytes, end: int) -> list[Any] | None: ...
