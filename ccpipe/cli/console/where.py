"""The configuration that a command uses; without cyclopts."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ccpipe.config import Site, find_config, load


@dataclass(frozen=True, kw_only=True)
class Where:
    """The configuration, cluster and broker that a command uses."""

    config: Path | None = None
    """Configuration file; default: $CCPIPE_CONFIG, the user's or the system's ccpipe.toml."""

    server: str | None = None
    """URL of the NATS server, such as nats://127.0.0.1:4222; comma-separated if several."""

    cluster: str | None = None
    """Name of the cluster."""

    def path(self) -> Path | None:
        """Return the configuration file in use, if there is one."""
        return self.config or find_config()

    def site(self, **more: Any) -> Site:
        """Load the configuration, overridden by these flags and by `more`, by key path."""
        return load(self.path(), Site, flags={**self.flags(), **more})

    def flags(self) -> dict[str, Any]:
        """Return the flags by key path, for ``config.load``."""
        servers = self.server.split(",") if self.server else None
        return {"bus.servers": servers, "cluster": self.cluster}
