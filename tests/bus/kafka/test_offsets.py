"""Which offset may be committed: the one before which all is safe."""

from hypothesis import given
from hypothesis import strategies as st

from ccpipe.bus.kafka.offsets import Offsets


@given(st.permutations(range(10)), st.integers(0, 10))
def test_no_offset_is_committed_before_those_in_front_of_it(order: list[int], count: int) -> None:
    """In whatever order messages become safe."""
    offsets = Offsets()
    for each in range(10):
        offsets.hand_over("p", each)
    assert offsets.positions() == {}
    for each in order[:count]:
        offsets.acknowledge("p", each)
    unsafe = set(order[count:])
    expected = min(unsafe, default=10)
    assert offsets.positions() == ({"p": expected} if expected else {})


def test_only_what_moved_is_committed_again() -> None:
    """Partitions that stand still cost nothing; those that were taken away mean nothing."""
    offsets = Offsets()
    for partition in ("p", "q"):
        offsets.hand_over(partition, 5)
        offsets.acknowledge(partition, 5)
    offsets.commit(offsets.positions())
    assert offsets.positions() == {}
    offsets.hand_over("p", 9)  # offsets have gaps
    offsets.acknowledge("p", 9)
    assert offsets.positions() == {"p": 10}
    offsets.forget(["p"])
    offsets.acknowledge("p", 9)
    assert offsets.positions() == {}
