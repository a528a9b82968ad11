"""The table of claims: equal shares, and writers that do not overwrite each other."""

from hypothesis import given
from hypothesis import strategies as st

from ccpipe.bus.nats.streams.claims import Claims, ClaimTable, Observer
from ccpipe.bus.subjects import Subjects
from ccpipe.config import Site
from tests.bus.nats.conftest import connected


@given(st.integers(1, 9), st.integers(1, 40), st.data())
def test_partitions_are_claimed_in_equal_shares(
    count: int, total: int, data: st.DataObject
) -> None:
    """Whatever was claimed before: none stays free, and no process exceeds its share."""
    members = [f"m{n}" for n in range(count)]
    partitions = [f"p{n}" for n in range(total)]
    table = ClaimTable(members=dict.fromkeys(members, 0))
    assert sum(table.share(member, total) for member in members) == total
    for partition in data.draw(st.lists(st.sampled_from(partitions), unique=True)):
        table.owners[partition] = data.draw(st.sampled_from(members))
    before = dict(table.owners)
    for member in members:
        new = table.claim(member, partitions, preferred=partitions[-1:])
        assert not new or len(table.of(member)) <= table.share(member, total)
    assert before.items() <= table.owners.items()
    assert set(table.owners) == set(partitions)
    table.remove({"m0"})
    assert "m0" not in {*table.members, *table.owners.values()}


def test_preferred_partitions_are_claimed_first() -> None:
    """A process that is still reading a partition reclaims that one."""
    table = ClaimTable(members={"a": 1, "b": 1})
    assert table.claim("a", ["p0", "p1", "p2", "p3"], preferred=["p3", "p2"]) == ["p2", "p3"]


def test_process_with_heartbeat_is_not_silent() -> None:
    observer = Observer(max_gap=1000)
    table = ClaimTable(members={"a": 1, "b": 1})
    assert observer.silent(table) == {"a": 0, "b": 0}
    table.members["a"] += 1
    silent = observer.silent(table)
    assert silent["a"] == 0
    assert silent["b"] > 0


def test_observer_starts_over_after_gap() -> None:
    """If this process was stalled, or the broker was unreachable, the measurement starts over."""
    observer = Observer(max_gap=0)
    table = ClaimTable(members={"a": 1})
    assert observer.silent(table) == observer.silent(table) == {"a": 0}


async def test_concurrent_write_of_table_fails(site: Site) -> None:
    """Of two that read the same version one fails, and loses nothing by reading again."""
    claims = Claims(site.bus, Subjects.of(site), "test")
    async with connected(site.bus) as bus:
        jetstream = bus.jetstream()
        table, sequence = await claims.read(jetstream)
        assert (table, sequence) == (ClaimTable(), 0)
        table.members["a"] = 1
        assert await claims.write(jetstream, table, sequence)
        assert not await claims.write(jetstream, ClaimTable(), sequence)
        again, sequence = await claims.read(jetstream)
        assert again == table
        assert await claims.write(jetstream, ClaimTable(), sequence)
        other = Claims(site.bus, Subjects.of(site), "other")
        assert (await other.read(jetstream)).sequence == 0
