"""The package's public names."""

from ccpipe.formats import sonar


def test_the_public_names_are_there() -> None:
    """All that is promised can be imported."""
    assert all(hasattr(sonar, name) for name in sonar.__all__)
