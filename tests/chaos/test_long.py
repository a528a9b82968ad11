"""All faults, several rounds each; writes ``docs/reliability.md``."""

import json
from pathlib import Path

import pytest

from tests.chaos.account import Account
from tests.chaos.faults import FAULTS, is_possible
from tests.chaos.page import ACCOUNTS, write_page

ROUNDS = 5


@pytest.fixture(scope="module", autouse=True)
def _page() -> object:
    """Write the page when all faults are through."""
    accounts: dict[str, Account] = {}
    ACCOUNTS.append(accounts)
    yield
    ACCOUNTS.remove(accounts)
    if accounts.keys() == FAULTS.keys():
        write_page(accounts, ROUNDS)


@pytest.mark.chaos
@pytest.mark.timeout(400)
@pytest.mark.parametrize("name", FAULTS)
async def test_nothing_is_lost(name: str, tmp_path: Path) -> None:
    """Whatever is done to the processes, as often as it is done."""
    if reason := is_possible(name):
        pytest.skip(reason)
    account = await FAULTS[name](tmp_path, ROUNDS)
    ACCOUNTS[-1][name] = account
    print(json.dumps({"fault": name, "lost": account.lost}))
    assert account.lost == 0, account
    assert account.published > 0
