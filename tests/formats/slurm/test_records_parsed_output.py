"""What readers hand back."""

from ccpipe.formats.slurm.records import MAX_EXCERPT, ParsedOutput, RejectedRow


def test_an_excerpt_is_short_and_printable() -> None:
    rejected = RejectedRow(1, "no", b"\xff" + b"x" * 10_000)
    assert rejected.excerpt.startswith("\\xffxxx")
    assert len(rejected.excerpt) == MAX_EXCERPT
    assert RejectedRow(1, "no", b"3|a").excerpt == "3|a"


def test_readings_add_up() -> None:
    whole = ParsedOutput([1], [RejectedRow(2, "a", b"")])
    whole.extend(ParsedOutput([3], [RejectedRow(4, "b", b"")]))
    assert whole == ParsedOutput([1, 3], [RejectedRow(2, "a", b""), RejectedRow(4, "b", b"")])
