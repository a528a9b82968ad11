"""``docs/reliability.md``, made of the accounts of a long run."""

from tests.chaos.account import Account, as_row
from tests.chaos.faults import LINES, RATE
from tests.paths import ROOT

PATH = ROOT / "docs" / "reliability.md"

_HEAD = """# Reliability

What becomes of each line when processes are killed and frozen, disks fill up and stores lie.
`make chaos` makes every fault with real processes (`ccpipe`, nats-server) on one machine, follows
each line by its number, and writes this page. A short set runs with every change
(`tests/chaos/test_faults.py`).

{lines} lines a round at {rate} a second, {rounds} rounds of each fault:

| fault | published | stored | duplicated | dead letters | dropped by a limit | lost |
| --- | ---: | ---: | ---: | ---: | ---: | ---: |
"""

_CONTRAST = """
For contrast, a publisher and a subscriber of nats-py without ccpipe, with the client's defaults
(it waits 2 s before it connects again); and Telegraf's `inputs.nats_consumer` in place of the
bridge, into its file output, behind a publisher of ccpipe:

| fault | published | stored | duplicated | dead letters | dropped by a limit | lost |
| --- | ---: | ---: | ---: | ---: | ---: | ---: |
"""

_TAIL = """
- **lost** is what is published and neither stored, nor a dead letter, nor dropped by a limit that
  was set and counted. With ccpipe it is 0.
- **duplicated** are copies in the store. The store of these runs is a file, or an HTTP store that
  keeps every copy; delivery is at least once, and what was written when a bridge was killed is
  written again. Stores that know what they have, PostgreSQL and Parquet, keep one.
- Published means that the broker had confirmed it, or that it was in the spool of a node.
- Dead letters are broken lines and what is outside a time window; `ccpipe dead` is the way back
  ([dead-letters.md](dead-letters.md)).
- SIGKILL keeps the kernel's cache. A power cut loses what the broker had not synced to its disk
  (`sync_interval`, [nats.md](nats.md)).
"""


def page(ours: dict[str, Account], plain: dict[str, Account], rounds: int) -> str:
    """Return the page: accounts of ccpipe, and of the contrast."""
    head = _HEAD.format(lines=LINES, rate=RATE, rounds=rounds)
    return head + _rows(ours) + _CONTRAST + _rows(plain) + _TAIL


def _rows(accounts: dict[str, Account]) -> str:
    return "".join(as_row(name, each) + "\n" for name, each in accounts.items())


def write_page(ours: dict[str, Account], plain: dict[str, Account], rounds: int) -> None:
    """Write the page of a complete run."""
    PATH.write_text(page(ours, plain, rounds), encoding="utf-8")
