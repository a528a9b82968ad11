"""What readers hand back."""

from ccpipe.formats.slurm.reading import MAX_EXCERPT, Reading, Rejected


def test_an_excerpt_is_short_and_printable() -> None:
    """However long and broken the original is, which is kept."""
    rejected = Rejected(1, "no", b"\xff" + b"x" * 10_000)
    assert rejected.excerpt.startswith("\\xffxxx")
    assert len(rejected.excerpt) == MAX_EXCERPT
    assert Rejected(1, "no", b"3|a").excerpt == "3|a"


def test_readings_add_up() -> None:
    """In their order."""
    whole = Reading([1], [Rejected(2, "a", b"")])
    whole.extend(Reading([3], [Rejected(4, "b", b"")]))
    assert whole == Reading([1, 3], [Rejected(2, "a", b""), Rejected(4, "b", b"")])
