"""Interface of a scheduler's records to ``Sums``."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

OUTCOME = "outcome"
"""The column of ``measure`` with how a run ended; no record has it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerColumns:
    """How tables of a scheduler's records are grouped, summed and measured."""

    keys: Mapping[str, str]
    """By name of a key to group by: its column; ``OUTCOME`` for how the run ended."""
    sums: Mapping[str, str]
    """By title of a sum: the column that is summed."""
    cpu: str
    """The title of the sum of CPU time, in seconds."""
    fields: tuple[str, ...]
    job_columns: Callable[[Any], dict[str, Any]]
    """Converts a table to the columns that ``measure`` takes."""
    good: frozenset[str]
    """Outcomes of runs that did not fail."""
