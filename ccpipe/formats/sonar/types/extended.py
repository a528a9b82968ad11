"""``ExtendedUint``: an unsigned number that may also be unset or infinite."""

from typing import ClassVar, Final

UINT64_MAX: Final = 2**64 - 1

_BASE = 2


class ExtendedUint:
    """An unsigned value that carries two additional values: unset and infinite.

    On the wire it is one unsigned integer: 0 for unset, 1 for infinite, and v+2 for all other
    values v, so that v itself ends at 2⁶⁴-3.

    >>> ExtendedUint(90).wire, UNSET.wire, INFINITE.wire
    (92, 0, 1)
    >>> ExtendedUint.from_wire(92).value
    90

    Source: Sonar JSON format output specification, *Type: ExtendedUint*.
    """

    __slots__ = ("wire",)
    UNSET: ClassVar["ExtendedUint"]
    INFINITE: ClassVar["ExtendedUint"]

    wire: int
    """The number in JSON."""

    def __init__(self, value: int) -> None:
        """Make a finite value; raises ValueError outside of 0 … 2⁶⁴-3."""
        if not 0 <= value <= UINT64_MAX - _BASE:
            raise ValueError(f"{value} is outside of 0 … 2⁶⁴-3")
        self.wire = value + _BASE

    @classmethod
    def from_wire(cls, number: int) -> "ExtendedUint":
        """Convert the number in JSON; raises ValueError outside of 0 … 2⁶⁴-1."""
        if number == 0:
            return cls.UNSET
        if number == 1:
            return cls.INFINITE
        if not 0 <= number <= UINT64_MAX:
            raise ValueError(f"{number} is outside of 0 … 2⁶⁴-1")
        return cls(number - _BASE)

    @property
    def value(self) -> int | None:
        """The number; None if it is unset or infinite."""
        return self.wire - _BASE if self.wire >= _BASE else None

    @property
    def is_infinite(self) -> bool:
        """Whether it means no limit, as Slurm's ``UNLIMITED``."""
        return self.wire == 1

    def __bool__(self) -> bool:
        """Return whether it is set."""
        return self.wire != 0

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ExtendedUint) and self.wire == other.wire

    def __hash__(self) -> int:
        return hash((ExtendedUint, self.wire))

    def __repr__(self) -> str:
        return f"ExtendedUint({_SPECIAL.get(self.wire, self.value)})"


_SPECIAL = {0: "UNSET", 1: "INFINITE"}


def _bare(wire: int) -> ExtendedUint:
    made = object.__new__(ExtendedUint)
    made.wire = wire
    return made


UNSET: Final = _bare(0)
INFINITE: Final = _bare(1)
ExtendedUint.UNSET, ExtendedUint.INFINITE = UNSET, INFINITE
