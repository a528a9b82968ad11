"""Data passed between the parts, and parts that do not implement their interface."""

import dataclasses
import importlib
import inspect
import textwrap
from pathlib import Path
from typing import Any

import pytest

from ccpipe.config import Publish, Site
from ccpipe.errors import ConfigError
from ccpipe.formats.lineprotocol import Lines
from ccpipe.node.agent.parts import collectors
from ccpipe.pipeline import (
    Batch,
    DeadLetter,
    Sink,
    Source,
    Stages,
    Translator,
    check_fit,
    interfaces,
    run,
)
from ccpipe.registry import build
from tests.pipeline.parts import ListSink, ListSource, made, play, values

PARTS = '''
from ccpipe import Batch, Lines, Sink, Source, Translator
from ccpipe.bus.codecs import Codec
from ccpipe.message import Message
from ccpipe.pipeline import DeadLetterSink, HoldingTranslator

class Misspelt(Sink):
    takes = Lines
    async def wirte(self, records): ...

class Synchronous(Sink):
    takes = Lines
    def write(self, records): ...

class Generating(Sink):
    takes = Lines
    async def write(self, records): yield

class Untyped(Sink):
    async def write(self, records): ...

class OfMessage(Untyped):
    takes = Message

class Unchecked(Untyped):
    takes = Lines
    def check(self): ...

class Underived:
    takes = Lines
    async def write(self, records): ...

def function_sink(records): ...

class Good(Source):
    gives = Lines
    async def batches(self):
        yield Batch(Lines())
    def stop(self): ...

class Endless(Good):
    stop = Source.stop

class StopsLater(Good):
    async def stop(self): ...

class YieldsNothing(Good):
    async def batches(self):
        return

class Ungiving(Source):
    batches, stop = Good.batches, Good.stop

class SynchronousDeadLetterSink(DeadLetterSink):
    def write(self, letters): ...

class WithFaultyDeadLetterSink(Good):
    @property
    def dead_letter_sink(self):
        return SynchronousDeadLetterSink()

class Unfed(Translator):
    takes = gives = Lines
    def fed(self, records): return records

class FedLater(Translator):
    takes = gives = Lines
    async def feed(self, records): return records

class Ungiven(Translator):
    takes = Lines
    def feed(self, records): return records

class Flushing(FedLater):
    def feed(self, records): return records
    def flush(self): ...

class FlushedLater(HoldingTranslator):
    takes = gives = Lines
    def feed(self, records): return records
    def oldest_held(self): ...
    async def flush(self): ...

class WriteOnly:
    records = Lines
    def encode(self, records, subjects, packing): ...

class DerivedWriteOnly(Codec):
    records = Lines
    def encode(self, records, subjects, packing): ...

class DecodesLater:
    records = Lines
    async def decode(self, messages): yield
    def encode(self, records, subjects, packing): ...

class Recordless:
    def decode(self, messages): ...
    def encode(self, records, subjects, packing): ...

class Collects:
    def colect(self, time): ...

class CollectsLater:
    async def collect(self, time): ...

def even(records: Lines, *, divisor: int = 2) -> Lines:
    """Keeps even numbers."""
    return records.take([each.value % divisor == 0 for each in records])

async def even_later(records): ...
'''

GROUPS = {
    "sinks": "Misspelt Synchronous Generating Untyped OfMessage Unchecked Underived function_sink",
    "sources": "Good Endless StopsLater YieldsNothing Ungiving WithFaultyDeadLetterSink",
    "translators": "Unfed FedLater Ungiven Flushing FlushedLater even even_later",
    "codecs": "WriteOnly DerivedWriteOnly DecodesLater Recordless",
    "collectors": "Collects CollectsLater",
}


@pytest.fixture(autouse=True)
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    info = tmp_path / "ccpipe_faulty-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: ccpipe-faulty\nVersion: 1.0\n")
    lists = [
        f"[ccpipe.{group}]\n"
        + "".join(f"{name} = ccpipe_faulty:{name}\n" for name in names.split())
        for group, names in GROUPS.items()
    ]
    (info / "entry_points.txt").write_text("\n".join(lists))
    (tmp_path / "ccpipe_faulty.py").write_text(textwrap.dedent(PARTS))
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()


def built(group: str, name: str, **options: Any) -> Any:
    table = {"use": name, **options}
    return build(group, table, where="r.toml", path="part", context={})


@pytest.mark.parametrize(
    ("group", "name", "fault"),
    [
        ("sinks", "Misspelt", "it has no method write, which every Sink needs"),
        ("sinks", "Synchronous", "its method write must be an async def without yield"),
        ("sinks", "Generating", "its method write must be an async def without yield"),
        ("sinks", "Untyped", "its attribute takes is missing; expected a type of records"),
        ("sinks", "OfMessage", "its attribute takes is <class 'ccpipe.message.Message'>; expected"),
        ("sinks", "Unchecked", "its method check must be an async def"),
        ("sinks", "Underived", "it must be derived from Sink"),
        ("sinks", "function_sink", "it must be derived from Sink"),
        ("sources", "Endless", "it has no method stop, which every Source needs"),
        ("sources", "StopsLater", "its method stop must be a def, not an async def"),
        ("sources", "YieldsNothing", "its method batches must be an async def that yields"),
        ("sources", "Ungiving", "its attribute gives is missing; expected a type of records"),
        ("translators", "Unfed", "it has no method feed, which every Translator needs"),
        ("translators", "FedLater", "its method feed must be a def, not an async def"),
        ("translators", "Ungiven", "its attribute gives is missing; expected a type of records"),
        ("translators", "Flushing", "it must be derived from HoldingTranslator"),
        ("translators", "FlushedLater", "its method flush must be a def, not an async def"),
        ("codecs", "WriteOnly", "it has no method decode, which every Codec needs"),
        ("codecs", "DerivedWriteOnly", "it has no method decode, which every Codec needs"),
        ("codecs", "DecodesLater", "its method decode must be a def, not an async def"),
        ("codecs", "Recordless", "its attribute records is missing; expected a type of records"),
    ],
)
def test_faulty_part_fails_when_it_is_built(group: str, name: str, fault: str) -> None:
    """The error has its key path, its name, its class and the missing method."""
    with pytest.raises(ConfigError) as caught:
        built(group, name)
    assert str(caught.value).startswith(f"r.toml: part: {name!r}: ccpipe_faulty.{name}: {fault}")


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("Collects", "it has no method collect, which every Collector needs"),
        ("CollectsLater", "its method collect must be a def, not an async def"),
    ],
)
def test_faulty_collector_is_disabled_when_it_is_built(
    name: str, fault: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The other collectors continue; one log line names it and the missing method."""
    found = collectors(Site(cluster="c", publish=Publish()), None)
    assert name not in found
    assert "load" in found
    assert f"collector {name} is off: ccpipe_faulty:{name} cannot be used: TypeError: {fault}" in (
        caplog.text
    )


def test_faulty_dead_letter_sink_fails_before_first_batch() -> None:
    """A source may have one; it is checked with the source."""
    with pytest.raises(
        ConfigError, match="SynchronousDeadLetterSink: its method write must be an async def"
    ):
        check_fit(built("sources", "WithFaultyDeadLetterSink"), (), ListSink())


def test_pipe_refuses_faulty_parts_built_by_hand() -> None:
    """A program without recipes gets the same errors; an abstract class is refused by Python."""

    class Hasty(Sink[Any]):
        takes = Lines

        def write(self, records: Lines) -> None:  # type: ignore[override]
            """Store nothing."""

    class Deaf(Source[Any]):
        gives = Lines

    with pytest.raises(ConfigError, match="Hasty: its method write must be an async def"):
        check_fit(ListSource([]), (), Hasty())
    with pytest.raises(TypeError, match="abstract"):
        Deaf()  # type: ignore[abstract]


def test_function_is_translator_if_it_is_entry_point() -> None:
    """Its further arguments are the options of its table; the type of records is unchanged."""
    source, sink = ListSource([made(1, 2, 3, 4, 5, 6)]), ListSink()
    play(run(source, sink, translators=[built("translators", "even")]))
    assert values(sink.written) == [2, 4, 6]
    [thirds] = Stages([built("translators", "even", divisor=3)], Lines).translators
    assert values(thirds.feed(made(1, 2, 3, 4, 5, 6))) == [3, 6]
    with pytest.raises(ConfigError, match="part: unknown key 'devisor'; did you mean 'divisor'"):
        built("translators", "even", devisor=3)


def test_asynchronous_function_is_refused_as_translator() -> None:
    """It would return a coroutine instead of records."""
    with pytest.raises(ConfigError, match="even_later: a translator must be a def"):
        Stages([built("translators", "even_later")], Lines)


def test_batch_is_immutable() -> None:
    """Every part sees what the source yielded."""
    batch = Batch(Lines())
    with pytest.raises(dataclasses.FrozenInstanceError):
        batch.records = Lines()  # type: ignore[misc]


def test_interfaces_have_few_optional_members() -> None:
    """They are easy to learn: the required methods, and few optional ones."""
    classes = [each for _, each in inspect.getmembers(interfaces, inspect.isclass)]
    parts = [each for each in classes if issubclass(each, interfaces.Part | Translator)]
    optional = {
        name
        for part in parts
        for name, member in vars(part).items()
        if not name.startswith("_abc")
        and name not in ("__init__", "__new__")
        and (not name.startswith("__") or name in ("__aenter__", "__aexit__"))
        and not getattr(member, "__isabstractmethod__", False)
        and not name.startswith("_")
    } | {"__aenter__", "__aexit__"}
    assert len(optional) <= 8, sorted(optional)


def test_dead_letter_is_logged_with_origin_reason_and_data() -> None:
    """One line of bounded length; without an index in the payload for a refused record."""
    unreadable = DeadLetter(b"x" * 1000, "no field", "fox.metrics", line=3, offset=70)
    text = str(unreadable)
    assert text.startswith("dead letter from fox.metrics line 3, offset 70: no field: xxx")
    assert len(text) < 200
    assert str(DeadLetter(b"a\nb", "too old")) == r"dead letter from ?: too old: a\nb"
