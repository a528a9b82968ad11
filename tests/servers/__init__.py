"""Real servers for tests and benchmarks: on free loopback ports, in directories of their own."""

import contextlib
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def stopped_on_failure(stop: Callable[[], None]) -> Iterator[None]:
    """Stop a server that was started but did not become ready, then raise the error."""
    try:
        yield
    except BaseException:
        stop()
        raise
