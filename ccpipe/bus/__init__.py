"""The broker: the only rooms that know NATS."""

import sys

if "aiohttp" not in sys.modules:
    # The client imports it where it is installed, for websockets only: 14 MB on every node.
    # ``connection.py`` brings it back where a server's URL asks for a websocket.
    sys.modules["aiohttp"] = None  # type: ignore[assignment]
    try:
        import nats  # noqa: F401
    finally:
        del sys.modules["aiohttp"]
