"""Brokers: one folder each, with source and sink; subjects and codecs are shared."""

import importlib.util
import sys
import threading
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any


class _Hidden:
    """An import finder that hides one module from one thread; other threads still find it."""

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
    """A placeholder for a module until one of its attributes is used."""

    def __getattr__(self, name: str) -> Any:
        if name == "__path__":  # Python looks it up in `from … import`
            raise AttributeError(name)
        if sys.modules.get(self.__name__) is self:  # another thread looks it up meanwhile
            del sys.modules[self.__name__]
        return getattr(importlib.import_module(self.__name__), name)


def _version(distribution: str) -> str:
    """Return the version of a package in a folder of wheels, from the name of its metadata."""
    start = distribution.replace("-", "_") + "-"
    place = Path(str(sys.modules["nats"].__file__)).parent.parent
    found = [each.name for each in place.glob(f"{start}*")]
    if len(found) == 1 and found[0].endswith(".dist-info"):
        return found[0].removeprefix(start).removesuffix(".dist-info")
    sys.modules.pop("importlib.metadata")
    return str(importlib.import_module("importlib.metadata").version(distribution))


def _import_client() -> None:
    """Import nats-py without its dependencies for websockets, JetStream and its version.

    aiohttp, if installed, would add 9 MB to the 41 MB of a publisher; ``nats.js`` takes a fifth of
    the time to the first line of ``tail``, and ``importlib.metadata`` a tenth. nats-py gets
    placeholders that import these modules on first use; the rest of the process is not affected.
    """
    if "nats" in sys.modules:
        return
    hidden, jetstream = _Hidden("aiohttp"), _Deferred("nats.js")
    metadata = _Deferred("importlib.metadata")
    vars(metadata)["version"] = _version
    sys.meta_path.insert(0, hidden)
    stand_ins = [each for each in (jetstream, metadata) if each.__name__ not in sys.modules]
    sys.modules.update({each.__name__: each for each in stand_ins})
    try:
        import nats
        from nats.aio import transport
    finally:
        sys.meta_path.remove(hidden)
        for each in stand_ins:
            if sys.modules.get(each.__name__) is each:
                del sys.modules[each.__name__]
    vars(nats)["js"] = jetstream
    if "aiohttp" not in sys.modules and importlib.util.find_spec("aiohttp"):
        vars(transport)["aiohttp"] = _Deferred("aiohttp")


_import_client()
