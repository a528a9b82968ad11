"""``newest`` on a real stream: the age of what is stored, by the broker's own clock."""

from ccpipe.bus.nats.streams.newest import newest
from ccpipe.bus.nats.streams.stream import ensure_stream
from ccpipe.bus.subjects import Subjects
from ccpipe.config import Site
from tests.bus.nats.conftest import connected


async def test_the_newest_of_all_patterns_counts(site: Site) -> None:
    """Wildcards are understood; a subject without a message, or without a stream, has no age."""
    subjects = Subjects.of(site)
    patterns = subjects.patterns(["metrics"])
    base = subjects.patterns(["metrics"])[0]
    async with connected(site.bus) as bus:
        assert await newest(bus, patterns) is None
        await ensure_stream(bus.jetstream(), site.bus, subjects, patterns)
        assert await newest(bus, patterns) is None
        await bus.jetstream().publish(f"{base}.n1", b"x value=1")
        age = await newest(bus, patterns)
        assert age is not None
        assert age >= 0
        assert await newest(bus, [f"{base}.n1"]) is not None
        assert await newest(bus, [f"{base}.n2"]) is None
        assert await newest(bus, [base]) is None
