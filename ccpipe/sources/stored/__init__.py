"""Reading from stores: the sources of ``ccpipe backfill``, the tables of ``ccpipe query``."""

from pathlib import Path


def is_delta_table(directory: Path) -> bool:
    """Return whether a directory is a Delta table; its files alone are not its rows."""
    return (directory / "_delta_log").is_dir()
