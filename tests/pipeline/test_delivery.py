"""The records of one write, each with the item that it came from."""

from hypothesis import given
from hypothesis import strategies as st

from ccpipe.pipeline.delivery import Portion
from ccpipe.pipeline.queue import Item
from tests.pipeline.parts import made, play, values


def portion(sizes: list[int]) -> Portion:
    """Join items of some sizes; the value of each record is its number."""

    async def items() -> list[Item]:
        numbers = iter(range(sum(sizes)))
        return [
            Item(made(*(next(numbers) for _ in range(size))), f"item {place}")
            for place, size in enumerate(sizes)
        ]

    found = play(items())
    return Portion.of(found)


SIZES = st.lists(st.integers(1, 5), min_size=1, max_size=6)


@given(SIZES, st.data())
def test_each_record_knows_its_item_after_any_split(sizes: list[int], data: st.DataObject) -> None:
    """Halves and portions without bad records name the same origin for a record."""
    origins = [f"item {place}" for place, size in enumerate(sizes) for _ in range(size)]
    left = [portion(sizes)]
    for _ in range(data.draw(st.integers(0, 6))):
        split = [each for each in left if len(each.records) > 1]
        if not split:
            break
        chosen = data.draw(st.sampled_from(split))
        left.remove(chosen)
        left += reversed(chosen.halves())
    for each in left:
        bad = data.draw(st.sets(st.integers(0, len(each.records) - 1)))
        kept = each.without(sorted(bad))
        assert sum(len(part.records) for part in kept) == len(each.records) - len(bad)
        for part in (each, *kept):
            for index, value in enumerate(values(part.records)):
                assert part.letter(index, "bad").origin == origins[int(value)]
