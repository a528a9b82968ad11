"""Output of custom commands: line protocol on their standard output.

For metrics without a ccpipe collector. Commands run concurrently, each without a shell and in its
own process group, which is killed after `timeout`. A line without a timestamp gets the slot's, one
without ``type`` gets ``type=node``; the line's own tags take precedence. A bad line, or a command
that fails or hangs, does not affect the others and is logged once.
"""

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from ccpipe.config import Duration, Size
from ccpipe.errors import ConfigError
from ccpipe.formats.lineprotocol import decode
from ccpipe.message import Message
from ccpipe.node.sampling.collector import Collector, CollectorGroup, Metric, SoftErrors
from ccpipe.process.child import run

METRICS: tuple[Metric, ...] = ()  # the metrics of a site's commands are unknown here


class Command(CollectorGroup):
    """Runs commands once a slot.

    Parameters
    ----------
    commands
        Programs with their arguments, keyed by a name for the log.
    timeout
        Time limit for each command.
    max_output_bytes
        Maximum output of each command, in bytes.

    """

    def __init__(
        self,
        *,
        commands: dict[str, list[str]] | None = None,
        timeout: Duration = Duration(5),
        max_output_bytes: Size = Size(2**20),
    ) -> None:
        for name, words in (commands or {}).items():
            if not words:
                raise ConfigError(f"commands.{name} is empty: it must name a program")
        self._each = {
            name: _Script(name, words, float(timeout), int(max_output_bytes))
            for name, words in (commands or {}).items()
        }

    def collectors(self) -> Mapping[str, Collector]:
        return self._each


class _Script:
    def __init__(self, name: str, words: Sequence[str], timeout: float, output: int) -> None:
        self._name = name
        self._words = words
        self._timeout = timeout
        self._output = output
        self.soft = SoftErrors("command")

    def collect(self, time: int) -> Iterator[Message]:
        try:
            payload = run(self._words, timeout=self._timeout, output=self._output)
        except OSError as error:
            self.soft.note(f"{self._name}: {error}")
            return
        lines = decode(payload)
        for bad in lines.rejected:
            reason = f"line {bad.line}: {bad.rule}: {bad.original!r:.80}"
            self.soft.note(f"{self._name}: {reason}")
        for message in lines:
            yield _completed(message, time)


def _completed(message: Message, time: int) -> Message:
    tags: Mapping[str, str] = {"type": "node", **message.tags}
    stamp = time if message.time is None else message.time
    return msgspec.structs.replace(message, tags=tags, time=stamp)
