"""Brokers: a folder for each, with its source and its sink; subjects and codecs are of all."""

import importlib.util
import sys
import threading
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any


class _Hidden:
    """An import finder that hides one module from one thread: others still find it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.thread = threading.get_ident()

    def find_spec(
        self,
        name: str,
        path: Sequence[str] | None = None,  # noqa: ARG002 - the interface of a finder
        target: ModuleType | None = None,  # noqa: ARG002
    ) -> ModuleSpec | None:
        if name == self.name and threading.get_ident() == self.thread:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return None


class _Deferred(ModuleType):
    """Stands for a module until one of its attributes is used."""

    def __getattr__(self, name: str) -> Any:
        return getattr(importlib.import_module(self.__name__), name)


def _import_client() -> None:
    """Import nats-py without what it needs for websockets and for JetStream only.

    aiohttp, where it is installed, would add 9 MB to the 41 MB of a publisher; ``nats.js`` a fifth
    of the time to the first line of ``tail``. In their place nats-py gets modules that import them
    when they are used; the rest of the process is not affected.
    """
    if "nats" in sys.modules:
        return
    hidden, jetstream = _Hidden("aiohttp"), _Deferred("nats.js")
    sys.meta_path.insert(0, hidden)
    sys.modules["nats.js"] = jetstream
    try:
        import nats
        from nats.aio import transport
    finally:
        sys.meta_path.remove(hidden)
        del sys.modules["nats.js"]
    vars(nats)["js"] = jetstream
    if "aiohttp" not in sys.modules and importlib.util.find_spec("aiohttp"):
        vars(transport)["aiohttp"] = _Deferred("aiohttp")


_import_client()
