"""From outlets to nodes."""

import tomllib
from pathlib import Path

from ccpipe import ConfigError, Lines, Message, RejectedRecord, Translator, to_lines
from ccpipe_pdu.readings import Readings


class PduToCc(Translator[Readings, Lines]):
    """Turns readings into the metric ``node_outlet_power`` of the node on the outlet."""

    takes = Readings
    gives = Lines

    def __init__(self, *, outlets: Path, cluster: str) -> None:
        """Take the options.

        Parameters
        ----------
        outlets
            A TOML file with the node of each outlet: ``"rack17/A/12" = "f0101"``.
        cluster
            The cluster of the nodes.

        Raises
        ------
        ConfigError
            if the file cannot be read.

        """
        self.cluster = cluster
        try:
            self.nodes = tomllib.loads(outlets.read_text())
        except (OSError, ValueError) as error:
            raise ConfigError(f"outlets: {outlets}: {error}") from None

    def feed(self, records: Readings) -> Lines:
        """Return a metric for each reading; readings of unknown outlets are rejected."""
        messages: list[Message] = []
        rejected: list[RejectedRecord] = []
        for index, reading in enumerate(records):
            if (node := self.nodes.get(reading.name)) is None:
                reason = f"unknown outlet {reading.name}"
                rejected.append(RejectedRecord(records.original(index), reason))
                continue
            tags = {
                "cluster": self.cluster, "hostname": node, "type": "node",
                "stype": "outlet", "stype-id": f"{reading.feed}{reading.outlet}",
            }  # fmt: skip
            time = reading.time * 10**9
            messages.append(Message("node_outlet_power", tags, reading.watts, time))
        return to_lines(messages, rejected)
