"""Durations and sizes, as configuration writes them."""


class Duration(float):
    """Seconds, written ``250ms``, ``10s``, ``5m``, ``2h``, ``1d`` or as a plain number."""

    __slots__ = ()
    EXAMPLES = "500ms, 10s, 5m"
    UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400, "": 1}  # noqa: RUF012


class Interval(Duration):
    """A duration of more than 0."""

    __slots__ = ()


class Size(int):
    """Bytes, written ``64KiB``, ``4MiB``, ``1GiB``, ``5MB`` or as a plain number."""

    __slots__ = ()
    EXAMPLES = "64KiB, 4MiB, 1GiB"
    UNITS = {  # noqa: RUF012
        "": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9,
        "KiB": 2**10, "MiB": 2**20, "GiB": 2**30,
    }  # fmt: skip
