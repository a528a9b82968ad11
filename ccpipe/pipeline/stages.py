"""From batches to items: the translators of a running pipe, and the records they withhold.

A batch must not be acknowledged while a translator withholds a part of it. Each stage therefore
keeps the batches of its latest feeds, and releases them along with the records that complete them.
Batches pass from stage to stage together with their records, and with rejected records as dead
letters.
"""

import asyncio
import inspect
import itertools
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Never, cast

from ccpipe.errors import ConfigError
from ccpipe.pipeline.interfaces import (
    Batch,
    DeadLetterSink,
    HoldingTranslator,
    Scope,
    Sink,
    Source,
    Translator,
)
from ccpipe.records import DeadLetter, Records, Rejected

AnyTranslator = Translator[Never, Records] | Callable[[Never], Records]
"""A translator, or a function from records to records of the same type."""


MAX_DEAD_LETTERS = 100
"""Maximum number of dead letters of one payload; further rejected lines share one."""
_OVERHEAD = 512
"""Bytes of an item without its records."""


@dataclass(slots=True)
class Receipt:
    """The acknowledgement of a batch whose records are being processed."""

    ack: Callable[[], Awaitable[None]] | None = None
    commits: list[tuple[Callable[[int], None], int]] = field(default_factory=list)
    """Called before `ack`: ``HoldingTranslator.commit`` of each translator, with its feed."""


@dataclass(slots=True)
class Item:
    """Records on their way to the sink, and the batches that are complete once they are written."""

    records: Records
    origin: str = ""
    """Origin of records without provenance."""
    letters: list[DeadLetter] = field(default_factory=list)
    """Dead letters to write before the batches are acknowledged."""
    complete: list[Receipt] = field(default_factory=list)
    is_redelivered: bool = False
    """Whether what is not acknowledged is delivered again."""
    size: int = field(init=False)
    """Approximate size in memory, in bytes."""
    born: float = 0.0
    """When it was put into the queue."""

    def __post_init__(self) -> None:
        letters = sum(len(letter.original) for letter in self.letters)
        self.size = _OVERHEAD + self.records.size + letters


class Stages:
    """The translators of a pipe, in order; they can be replaced while the pipe runs."""

    def __init__(self, translators: Sequence[AnyTranslator], takes: type[Records]) -> None:
        """Start with these translators; `takes` is the type of incoming records."""
        self.takes = takes
        self._stages = [_Stage(each) for each in _typed(translators, takes)]
        self._left: list[Item] = []  # output of translators that were replaced
        self._origin, self._is_redelivered = "", False  # as for the latest batch
        self._replaced = asyncio.Event()

    def __len__(self) -> int:
        return len(self._stages)

    @property
    def translators(self) -> list[Translator[Records, Records]]:
        return [stage.translator for stage in self._stages]

    @property
    def gives(self) -> type[Records]:
        return self._stages[-1].translator.gives if self._stages else self.takes

    @property
    def scope(self) -> Scope:
        return max((stage.translator.scope for stage in self._stages), default=Scope.RECORD)

    @property
    def is_holding(self) -> bool:
        """Whether an empty feed may return something."""
        return bool(self._left) or any(stage.oldest_held is not None for stage in self._stages)

    def replace(self, translators: Sequence[AnyTranslator]) -> None:
        """Replace the translators; records withheld by the former ones follow with the next feed.

        A translator that stays keeps the numbering of its feeds.
        """
        self._left = self.flush()
        known = {id(stage.translator): stage for stage in self._stages}
        self._stages = [
            known.get(id(each)) or _Stage(each) for each in _typed(translators, self.takes)
        ]
        self._replaced.set()

    async def wait_replaced(self) -> None:
        self._replaced.clear()
        await self._replaced.wait()

    def feed(self, batch: Batch[Records] | None) -> list[Item]:
        """Translate a batch; None if none arrived within the interval."""
        left, self._left = self._left, []
        if batch is None:
            return [*left, self._through(self._stages, self.takes(), [], [])]
        self._origin = _origin_of(batch.records, batch.origin)
        self._is_redelivered = batch.ack is not None
        letters = dead_letters_of(batch.records.rejected, self._origin)
        return [*left, self._through(self._stages, batch.records, [Receipt(batch.ack)], letters)]

    def flush(self) -> list[Item]:
        """Return what is still held back, stage by stage."""
        left, self._left = self._left, []
        for position, stage in enumerate(self._stages, 1):
            records, complete = stage.flush()
            letters = dead_letters_of(records.rejected, self._origin)
            left.append(self._through(self._stages[position:], records, complete, letters))
        return left

    def _through(
        self,
        stages: "Sequence[_Stage]",
        records: Records,
        complete: list[Receipt],
        letters: list[DeadLetter],
    ) -> Item:
        for stage in stages:
            known = set(map(id, records.rejected))
            origin = _origin_of(records, self._origin)
            records, complete = stage.feed(records, complete)
            rejected = [each for each in records.rejected if id(each) not in known]
            letters += dead_letters_of(rejected, origin)
        return Item(records, self._origin, letters, complete, self._is_redelivered)


def _origin_of(records: Records, default: str) -> str:
    return records.provenance.origins[0] if records.provenance else default


def dead_letters_of(rejected: Sequence[Rejected], origin: str) -> list[DeadLetter]:
    """Return dead letters for what could not be read or was rejected.

    A payload of bad lines only would otherwise turn one megabyte into half a million dead letters.
    Nothing is lost: the last one contains all lines beyond the maximum.
    """
    letters = [
        DeadLetter(bad.original, bad.reason, origin, bad.line, bad.offset)
        for bad in rejected[:MAX_DEAD_LETTERS]
    ]
    if rest := rejected[MAX_DEAD_LETTERS:]:
        first = rest[0]
        together = b"\n".join(bad.original for bad in rest)
        # The last may contain several.
        lines = len(rest) + rest[-1].original.rstrip(b"\n").count(b"\n")
        reason = f"{lines} more lines that could not be read, the first: {first.reason}"
        where = (origin, first.line, first.offset)
        letters.append(DeadLetter(together, reason, *where, lines=lines))
    return letters


class _Stage:
    """One translator."""

    def __init__(self, translator: Translator[Records, Records]) -> None:
        self.translator = translator
        self._number = 0  # of the latest feed
        self._feeds: deque[list[Receipt]] = deque()  # batches of the latest feeds, oldest first

    @property
    def oldest_held(self) -> int | None:
        translator = self.translator
        return translator.oldest_held() if isinstance(translator, HoldingTranslator) else None

    def feed(self, records: Records, batches: list[Receipt]) -> tuple[Records, list[Receipt]]:
        """Feed records that complete `batches`; return what is ready, and the completed batches.

        A batch is complete with the last record made from it.
        """
        self._number += 1
        ready = self.translator.feed(records)
        require_type(ready, self.translator.gives, self.translator)
        if isinstance(self.translator, HoldingTranslator):
            for batch in batches:
                batch.commits.append((self.translator.commit, self._number))
        self._feeds.append(batches)
        return ready, self._release(self.oldest_held)

    def flush(self) -> tuple[Records, list[Receipt]]:
        translator = self.translator
        if isinstance(translator, HoldingTranslator):
            return translator.flush(), self._release(None)
        return translator.gives(), self._release(None)

    def _release(self, oldest: int | None) -> list[Receipt]:
        held = 0 if oldest is None else self._number - oldest + 1
        complete: list[Receipt] = []
        while len(self._feeds) > held:
            complete += self._feeds.popleft()
        return complete


class FunctionTranslator(Translator[Records, Records]):
    """A plain function as a translator."""

    def __init__(self, function: Callable[[Records], Records], type_: type[Records]) -> None:
        """Call `function` with each feed; the type of records stays the same.

        Raises
        ------
        ConfigError
            if it is asynchronous: translators do no I/O.

        """
        if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
            raise ConfigError(f"{_name(function)}: a translator must be a def, not an async def")
        self.function = function
        self.takes = self.gives = type_

    def feed(self, records: Records) -> Records:
        return self.function(records)


def _name(function: Callable[..., object]) -> str:
    return getattr(function, "__name__", type(function).__name__)


def _typed(
    translators: Sequence[AnyTranslator], takes: type[Records]
) -> list[Translator[Records, Records]]:
    """Wrap plain functions; they take the type of records given by the part before."""
    typed: list[Translator[Records, Records]] = []
    for each in translators:
        if isinstance(each, Translator):
            require_conforming(each, translator_interface(each))
            typed.append(cast("Translator[Records, Records]", each))
        elif callable(each):
            typed.append(FunctionTranslator(cast("Callable[[Records], Records]", each), takes))
        else:
            raise ConfigError(f"{type(each).__name__} is neither a Translator nor a function")
        takes = typed[-1].gives
    return typed


def translator_interface(part: object) -> type[object]:
    """Return what a translator, or its class, must implement: more if it withholds records."""
    holds = any(hasattr(part, name) for name in HOLDING)
    return HoldingTranslator if holds else Translator


HOLDING = ("oldest_held", "flush", "commit")


OPTIONAL = ("__aenter__", "__aexit__", "check", "commit")
"""Methods with a default, which a part may override."""
RECORD_TYPES = ("takes", "gives", "records")
"""Attributes that declare a type of records, where the interface annotates them."""


def fault_of(part: object, interface: type[object]) -> str:
    """Return what is wrong with a part, or with its class before that is built; empty if nothing.

    Checked before a part processes records: a misspelt ``write`` would otherwise acknowledge
    records that nothing has stored.
    A part needs no base class if its interface is a protocol.
    """
    cls = part if isinstance(part, type) else type(part)
    name = interface.__name__
    is_protocol = getattr(interface, "_is_protocol", False)
    if not is_protocol and not issubclass(cls, interface):
        return f"it must be derived from {name}"
    required = sorted(getattr(interface, "__abstractmethods__", ()))
    if missing := [method for method in required if _is_missing(getattr(part, method, None))]:
        return f"it has no method {' and no '.join(missing)}, which every {name} needs"
    for method in (*required, *OPTIONAL):
        declared = getattr(interface, method, None)
        if declared is not None and (kind := _mismatch(declared, getattr(part, method))):
            return f"its method {method} must be {kind}"
    return "" if part is cls else _type_fault(part, interface)


def _is_missing(method: object) -> bool:
    return not callable(method) or getattr(method, "__isabstractmethod__", False)


def _mismatch(declared: object, method: object) -> str:
    """Return what a method must be, if calling it as declared would fail; else nothing."""
    is_async = inspect.iscoroutinefunction(method)
    if inspect.iscoroutinefunction(declared):
        return "" if is_async else "an async def without yield"
    if getattr(declared, "__name__", "") == "batches":
        return "an async def that yields batches" if is_async else ""
    return "a def, not an async def" if is_async or inspect.isasyncgenfunction(method) else ""


def _type_fault(part: object, interface: type[object]) -> str:
    """Return which type of records a part does not declare."""
    annotated = {name for cls in interface.__mro__ for name in inspect.get_annotations(cls)}
    for name in annotated.intersection(RECORD_TYPES):
        kind = getattr(part, name, None)
        if not (isinstance(kind, type) and all(hasattr(kind, each) for each in ("name", "concat"))):
            found = f"is {kind!r:.80}" if hasattr(part, name) else "is missing"
            return f"its attribute {name} {found}; expected a type of records, such as Lines"
    return ""


def require_conforming(part: object, interface: type[object]) -> None:
    """Raise ConfigError if a part does not implement its interface."""
    if fault := fault_of(part, interface):
        raise ConfigError(f"{type(part).__name__}: {fault}")


def require_type(records: object, type_: type[Records], part: object) -> None:
    """Raise TypeError if a part returned another type than it declares."""
    if not isinstance(records, type_):
        name = _name(part.function) if isinstance(part, FunctionTranslator) else type(part).__name__
        raise TypeError(f"{name} returned {type(records).__name__}; expected {type_.__name__}")


def check_fit(
    source: Source[Records],
    translators: "Sequence[AnyTranslator] | Stages",
    sink: Sink[Never],
) -> Stages:
    """Return the translators as stages, where each part takes what the one before it gives.

    Raises
    ------
    ConfigError
        naming the two parts that do not fit, or one that does not implement its interface.

    """
    require_conforming(source, Source)
    require_conforming(sink, Sink)
    if (letters := source.dead_letter_sink) is not None:
        require_conforming(letters, DeadLetterSink)
    if not isinstance(translators, Stages):
        translators = Stages(translators, source.gives)
    parts: list[tuple[str, object, type[Records], type[Records]]] = [
        ("source", source, source.gives, source.gives)
    ]
    parts += [("translator", each, each.takes, each.gives) for each in translators.translators]
    parts.append(("sink", sink, sink.takes, sink.takes))
    for (role, before, _, gives), (next_role, after, takes, _) in itertools.pairwise(parts):
        if not issubclass(gives, takes):
            raise ConfigError(
                f"the {role} ({type(before).__name__}) gives {gives.name}, but the {next_role} "
                f"({type(after).__name__}) takes {takes.name}: a translator is missing between them"
            )
    return translators


def commit(receipts: Sequence[Receipt]) -> None:
    """Call ``commit`` of each translator once, with its latest feed that is stored."""
    latest = {commit: feed for receipt in receipts for commit, feed in receipt.commits}
    for commit, feed in latest.items():
        commit(feed)
