"""Options that commands share."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cyclopts import Parameter

from ccpipe.config import Site, find_config, load


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Where:
    """Which configuration, cluster and broker a command works with."""

    config: Path | None = None
    """Configuration file; without it $CCPIPE_CONFIG, the user's or the system's ccpipe.toml."""

    server: str | None = None
    """URL of the NATS server, such as nats://127.0.0.1:4222; several with commas."""

    cluster: str | None = None
    """Name of the cluster."""

    def site(self) -> Site:
        """Load the configuration with these flags on top."""
        return load(self.config or find_config(), Site, flags=self.flags())

    def flags(self) -> dict[str, Any]:
        """Return the flags by key path, for ``config.load``."""
        servers = self.server.split(",") if self.server else None
        return {"bus.servers": servers, "cluster": self.cluster}
