"""The translators of a running pipe, and the batches of which they still hold something back.

A batch must not be acknowledged while a translator holds back a part of it. Each stage therefore
keeps the batches of its latest feeds, and releases them along with the records that complete them.
Batches pass from stage to stage together with their records.
"""

import asyncio
import inspect
import itertools
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ccpipe.errors import ConfigError
from ccpipe.pipeline.conformance import fault_of
from ccpipe.pipeline.interfaces import (
    Batch,
    DeadLetter,
    DeadLetterSink,
    Records,
    RecordType,
    Sink,
    Source,
    Translator,
)

AnyTranslator = Translator | Callable[[Any], Any]


@dataclass(slots=True)
class Translated:
    """The result of one feed after all stages."""

    records: Records
    complete: list[Batch] = field(default_factory=list)
    """Batches of which nothing is held back."""
    letters: list[DeadLetter] = field(default_factory=list)
    """Dead letters of what translators rejected."""


class Stages:
    """The translators of a pipe, in order; they can be replaced while the pipe runs."""

    def __init__(self, translators: Sequence[AnyTranslator], takes: RecordType) -> None:
        """Start with these translators; `takes` is the type of incoming records."""
        self.takes = takes
        self._stages = [_Stage(each) for each in _typed(translators, takes)]
        self._left: list[Translated] = []  # output of translators that were replaced
        self._origin = ""
        self._replaced = asyncio.Event()

    def __len__(self) -> int:
        """Return the number of translators."""
        return len(self._stages)

    @property
    def translators(self) -> list[Translator]:
        """The translators in their order."""
        return [stage.translator for stage in self._stages]

    @property
    def gives(self) -> RecordType:
        """The type of records that come out."""
        return self._stages[-1].translator.gives if self._stages else self.takes

    @property
    def is_holding(self) -> bool:
        """Whether an empty feed may return something."""
        return bool(self._left) or any(stage.is_holding for stage in self._stages)

    @property
    def is_stateful(self) -> bool:
        """Whether output depends on earlier batches."""
        return any(stage.translator.is_stateful for stage in self._stages)

    def replace(self, translators: Sequence[AnyTranslator]) -> None:
        """Replace the translators; what the former ones held back comes with the next feed.

        A translator that stays keeps the numbering of its feeds.
        """
        self._left = self.flush()
        known = {id(stage.translator): stage for stage in self._stages}
        self._stages = [
            known.get(id(each)) or _Stage(each) for each in _typed(translators, self.takes)
        ]
        self._replaced.set()

    async def wait_replaced(self) -> None:
        """Wait until translators are replaced."""
        self._replaced.clear()
        await self._replaced.wait()

    def feed(self, batch: Batch | None) -> list[Translated]:
        """Translate a batch; None if none arrived within the interval."""
        left, self._left = self._left, []
        if batch is None:
            records, batches = self.takes.of(()), list[Batch]()
        else:
            self._origin = batch.origin
            records, batches = batch.records, [batch]
            batch.records = ()
        return [*left, self._through(self._stages, records, batches)]

    def flush(self) -> list[Translated]:
        """Return what is still held back, stage by stage."""
        left, self._left = self._left, []
        for position, stage in enumerate(self._stages, 1):
            records, complete = stage.flush()
            letters = stage.take_dead_letters(self._origin)
            result = self._through(self._stages[position:], records, complete)
            result.letters[:0] = letters
            left.append(result)
        return left

    def _through(
        self, stages: "Sequence[_Stage]", records: Records, complete: list[Batch]
    ) -> Translated:
        letters: list[DeadLetter] = []
        for stage in stages:
            records, complete = stage.feed(records, complete)
            letters += stage.take_dead_letters(self._origin)
        return Translated(records, complete, letters)


class _Stage:
    """One translator."""

    def __init__(self, translator: Translator) -> None:
        self.translator = translator
        self._number = 0  # of the latest feed
        self._feeds: deque[list[Batch]] = deque()  # batches of the latest feeds, oldest first

    @property
    def is_holding(self) -> bool:
        return self.translator.oldest_held is not None

    def feed(self, records: Records, batches: list[Batch]) -> tuple[Records, list[Batch]]:
        """Feed records that complete `batches`; return what is ready, and the completed batches.

        A batch is complete with the last record made from it.
        """
        self._number += 1
        ready = self.translator.feed(records)
        for batch in batches:
            batch.commits.append((self.translator, self._number))
        self._feeds.append(batches)
        return self.translator.gives.of(ready), self._release(self.translator.oldest_held)

    def flush(self) -> tuple[Records, list[Batch]]:
        return self.translator.gives.of(self.translator.flush()), self._release(None)

    def take_dead_letters(self, origin: str) -> list[DeadLetter]:
        """Return dead letters of what the translator rejected since the last call."""
        takes = self.translator.takes
        return [
            DeadLetter(takes.of([record]).original(0), reason, origin)
            for record, reason in self.translator.take_rejected()
        ]

    def _release(self, oldest: int | None) -> list[Batch]:
        held = 0 if oldest is None else self._number - oldest + 1
        complete: list[Batch] = []
        while len(self._feeds) > held:
            complete += self._feeds.popleft()
        return complete


class FunctionTranslator(Translator):
    """A plain function as a translator."""

    def __init__(self, function: Callable[[Any], Any], type_: RecordType) -> None:
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

    def feed(self, records: Any) -> Any:
        """Return what the function makes of the records."""
        return self.function(records)


def _name(function: Callable[[Any], Any]) -> str:
    return getattr(function, "__name__", type(function).__name__)


def _typed(translators: Sequence[AnyTranslator], takes: RecordType) -> list[Translator]:
    """Wrap plain functions; they take the type of records given by the part before."""
    typed: list[Translator] = []
    for each in translators:
        if isinstance(each, Translator):
            require_conforming(each, Translator)
            typed.append(each)
        elif callable(each):
            typed.append(FunctionTranslator(each, takes))
        else:
            raise ConfigError(f"{type(each).__name__} is neither a Translator nor a function")
        takes = typed[-1].gives
    return typed


def require_conforming(part: object, interface: type[Any]) -> None:
    """Raise ConfigError if a part does not implement its interface."""
    if fault := fault_of(part, interface):
        raise ConfigError(f"{type(part).__name__}: {fault}")


def check_fit(
    source: Source, translators: "Sequence[AnyTranslator] | Stages", sink: Sink
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
    parts: list[tuple[object, RecordType, RecordType]] = [(source, source.gives, source.gives)]
    parts += [(each, each.takes, each.gives) for each in translators.translators]
    parts.append((sink, sink.takes, sink.takes))
    for (before, _, gives), (after, takes, _) in itertools.pairwise(parts):
        if gives.name != takes.name:
            raise ConfigError(
                f"{type(before).__name__} gives {gives.name}, but {type(after).__name__} takes "
                f"{takes.name}: a translator is missing between them"
            )
    return translators


def commit(batches: Sequence[Batch]) -> None:
    """Call ``commit`` of each translator once, with its latest feed that is stored."""
    latest = {id(translator): (translator, feed) for b in batches for translator, feed in b.commits}
    for translator, feed in latest.values():
        translator.commit(feed)


async def acknowledge(batches: Sequence[Batch]) -> None:
    """Acknowledge batches in order."""
    for batch in batches:
        await batch.ack()
