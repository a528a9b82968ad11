"""Real servers for tests and benchmarks: on free loopback ports, in directories of their own."""

import contextlib
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def stopped_on_failure(stop: Callable[[], None]) -> Iterator[None]:
    """Stop a server that was started but does not become ready, before the error goes on."""
    try:
        yield
    except BaseException:
        stop()
        raise
