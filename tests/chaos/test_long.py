"""All faults, several rounds each; writes ``docs/operations/reliability.md``."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chaos import contrast
from tests.chaos.account import Account
from tests.chaos.contrast import CONTRAST
from tests.chaos.faults import FAULTS, LINES, is_possible
from tests.chaos.page import write_page

ROUNDS = 5
STORED_ONCE = ("Parquet", "Delta", "PostgreSQL", "Prometheus", "libfaketime", "into another")
"""Words in the names of faults after which the store has one copy of each line."""

Accounts = dict[str, Account]


@pytest.fixture(scope="module")
def accounts() -> Iterator[tuple[Accounts, Accounts]]:
    """Collect the accounts of ccpipe and of the contrast; write the page when all are there."""
    ours: Accounts = {}
    plain: Accounts = {}
    yield ours, plain
    wanted = {name for name in CONTRAST if not contrast.is_possible(name)}
    if ours.keys() == FAULTS.keys() and plain.keys() == wanted:
        write_page(ours, plain, ROUNDS)


@pytest.mark.chaos
@pytest.mark.timeout(400)
@pytest.mark.parametrize("name", FAULTS)
async def test_repeated_fault_loses_no_line(
    name: str, tmp_path: Path, accounts: tuple[Accounts, Accounts]
) -> None:
    if reason := is_possible(name):
        pytest.skip(reason)
    account = accounts[0][name] = await FAULTS[name](tmp_path, ROUNDS)
    assert account.lost == 0, account
    assert account.published > 0
    if any(words in name for words in STORED_ONCE):
        assert account.duplicated == 0


@pytest.mark.chaos
@pytest.mark.timeout(400)
@pytest.mark.parametrize("name", CONTRAST)
async def test_account_shows_losses_without_ccpipe(
    name: str, tmp_path: Path, accounts: tuple[Accounts, Accounts]
) -> None:
    """The same faults lose lines without ccpipe, and the account counts them."""
    if reason := contrast.is_possible(name):
        pytest.skip(reason)
    account = accounts[1][name] = await CONTRAST[name](tmp_path, ROUNDS)
    assert account.published == LINES * ROUNDS
    assert account.lost > 0 or "the subscriber" not in name
