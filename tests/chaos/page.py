"""``docs/operations/reliability.md``, made of the accounts of a long run."""

from tests.chaos.account import Account, as_row
from tests.chaos.faults import LINES, RATE
from tests.paths import ROOT

PATH = ROOT / "docs/operations/reliability.md"

_HEAD = """# Reliability

The fate of each line when processes are killed or frozen, disks fill up and stores misbehave.
`make chaos` injects every fault into real processes (`ccpipe`, nats-server) on one machine, tracks
each line by its number, and writes this page. A short set runs on every change
(`tests/chaos/test_faults.py`).

{lines} lines per round at {rate} per second, {rounds} rounds of each fault:

| fault | published | stored | duplicated | dead letters | dropped by a limit | lost |
| --- | ---: | ---: | ---: | ---: | ---: | ---: |
"""

_CONTRAST = """
For comparison: a nats-py publisher and subscriber without ccpipe, with the client's defaults (it
waits 2 s before it reconnects); and Telegraf's `inputs.nats_consumer` with its file output instead
of the bridge, fed by a ccpipe publisher:

| fault | published | stored | duplicated | dead letters | dropped by a limit | lost |
| --- | ---: | ---: | ---: | ---: | ---: | ---: |
"""

_TAIL = """
- **lost** lines were published, but neither stored, nor dead letters, nor dropped by a configured
  limit and counted. ccpipe loses no line.
- **duplicated** counts extra copies in the store. The store in these runs is a file, or an HTTP
  store that keeps every copy. Delivery is at least once: lines written but not acknowledged when a
  bridge was killed are written again, and so is what a broker had delivered in its last tenth of a
  second, if both are killed ([guarantees.md](guarantees.md#delivery)). Whether a kill hits such a
  moment is chance: these numbers differ from run to run. Stores that deduplicate, PostgreSQL,
  Parquet and Delta, keep one copy. So does a stream that a bridge publishes into, for messages of
  at least 50 lines and within two minutes ([wire.md](../reference/wire.md#streams-and-message-ids)
  lists the exceptions).
- **published** lines were confirmed by the broker, or were in the spool of a node.
- **dead letters** are malformed lines, lines outside a time window and rows that a store refuses;
  replay them with `ccpipe dead-letters` ([dead-letters.md](dead-letters.md)).
- SIGKILL preserves the kernel's page cache. A power failure loses what the broker had not synced to
  disk (`sync_interval`, [nats.md](nats.md)).
"""


def page(ours: dict[str, Account], plain: dict[str, Account], rounds: int) -> str:
    """Return the page: accounts of ccpipe, and of the contrast."""
    head = _HEAD.format(lines=LINES, rate=RATE, rounds=rounds)
    return head + _rows(ours) + _CONTRAST + _rows(plain) + _TAIL


def _rows(accounts: dict[str, Account]) -> str:
    return "".join(as_row(name, each) + "\n" for name, each in accounts.items())


def write_page(ours: dict[str, Account], plain: dict[str, Account], rounds: int) -> None:
    PATH.write_text(page(ours, plain, rounds), encoding="utf-8")
