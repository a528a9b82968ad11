"""Selection of accounting records: every filter of qacct(1), on whole columns at once.

>>> import pyarrow as pa
>>> table = pa.table({"owner": ["anna", "ben"], "cpu": [1.0, 2.0]})
>>> Selection(texts={"owner": ("a*",)}).apply(table)["cpu"].to_pylist()
[1.0]
"""

import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from ccpipe.errors import MissingExtra

try:
    import pyarrow as pa
    import pyarrow.compute as pc
except ImportError:
    raise MissingExtra("pyarrow", "parquet") from None

NONE = "NONE"
"""qacct's name for "no project" and "no parallel environment"."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordSelection:
    """The filters that a record must pass; several values of one filter are alternatives.

    Patterns are those of a shell (fnmatch(3)).
    """

    texts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """By column: patterns for its text."""
    numbers: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    hosts: tuple[str, ...] = ()
    """Patterns for the host, case-insensitive; one without a dot matches the short name."""
    queues: tuple[str, ...] = ()
    """Patterns for ``queue@host``; a queue alone means all its hosts."""
    jobs: tuple[int, ...] = ()
    names: tuple[str, ...] = ()
    """Patterns for the job's name; a record is selected by its number or its name."""
    tasks: tuple[range, ...] = ()
    begin: int | None = None
    """The earliest start in nanoseconds; a job that never started has the time 0, as in qacct."""
    end: int | None = None
    by_end: bool = False
    """Whether `begin` and `end` apply to the end of the job."""
    masters: bool = False
    """Whether tasks of parallel jobs are left out."""

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for names, _ in self._rules() for name in names))

    def apply(self, table: pa.Table) -> pa.Table:
        masks = [rule(*(table[name] for name in names)) for names, rule in self._rules()]
        return table.filter(functools.reduce(pc.and_, masks)) if masks else table

    def _rules(self) -> Iterator[tuple[tuple[str, ...], Callable[..., Any]]]:
        """Yield each rule's columns and the rule: columns to a mask."""
        for name, patterns in self.texts.items():
            yield (name,), functools.partial(_like, patterns)
        for name, numbers in self.numbers.items():
            yield (name,), functools.partial(_among, numbers)
        if self.hosts:
            yield ("hostname",), functools.partial(_like_host, self.hosts)
        if self.queues:
            yield ("qname", "hostname"), functools.partial(_like_queue, self.queues)
        if self.jobs or self.names:
            yield ("job_number", "job_name"), self._is_job
        if self.tasks:
            yield ("task_number",), functools.partial(_in_ranges, self.tasks)
        when = "end_time" if self.by_end else "start_time"
        if self.begin is not None:
            yield (when,), lambda times: pc.greater_equal(pc.fill_null(times, 0), self.begin)
        if self.end is not None:
            yield (when,), lambda times: pc.less_equal(pc.fill_null(times, 0), self.end)
        if self.masters:
            yield ("pe_taskid",), pc.is_null

    def _is_job(self, numbers: Any, names: Any) -> Any:
        by_number = _among(self.jobs, numbers)
        return pc.or_(by_number, _like(self.names, names)) if self.names else by_number


def _matching(column: Any, is_wanted: Callable[[str], bool]) -> Any:
    """Test each distinct text once."""
    column = pc.fill_null(column, NONE)
    wanted = [text for text in pc.unique(column).to_pylist() if is_wanted(text)]
    return pc.is_in(column, pa.array(wanted, pa.string()))


def _like(patterns: tuple[str, ...], column: Any) -> Any:
    return _matching(column, lambda text: any(fnmatchcase(text, p) for p in patterns))


def _like_host(patterns: tuple[str, ...], column: Any) -> Any:
    wanted = [pattern.lower() for pattern in patterns]

    def is_wanted(host: str) -> bool:
        host = host.lower()
        short = host.partition(".")[0]
        return any(fnmatchcase(host if "." in p else short, p) for p in wanted)

    return _matching(column, is_wanted)


def _like_queue(patterns: tuple[str, ...], queues: Any, hosts: Any) -> Any:
    whole = tuple(p + "@*" if "@" not in p else p + "*" * p.endswith("@") for p in patterns)
    return _like(whole, pc.binary_join_element_wise(queues, hosts, "@"))


def _among(numbers: tuple[int, ...], column: Any) -> Any:
    return pc.is_in(column, pa.array(numbers, pa.int64()))


def _in_ranges(ranges: tuple[range, ...], column: Any) -> Any:
    def is_in(wanted: range) -> Any:
        after = pc.subtract(column, wanted.start)
        steps = pc.divide(after, wanted.step)
        on_step = pc.equal(pc.multiply(steps, wanted.step), after)
        within = pc.and_(pc.greater_equal(after, 0), pc.less(column, wanted.stop))
        return pc.and_(within, on_step)

    return functools.reduce(pc.or_, map(is_in, ranges))
