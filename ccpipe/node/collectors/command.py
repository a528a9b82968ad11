"""Whatever a command of the site's own prints: line protocol on its standard output.

For what ccpipe has no collector for. A command is run without a shell, in a process group of its
own that is killed when its time is up. A line without timestamp is stamped with the slot, one
without ``type`` is the node's; a line's own tags win. A bad line, and a command that fails, cost
themselves only and are logged once.
"""

import contextlib
import os
import selectors
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from time import monotonic

import msgspec

from ccpipe.config import Duration, Size
from ccpipe.errors import ConfigError
from ccpipe.formats.lineprotocol import decode
from ccpipe.message import Message
from ccpipe.node.sampling.metrics import Metric
from ccpipe.node.sampling.soft_errors import SoftErrors

METRICS: tuple[Metric, ...] = ()
"""What a site's commands print is not known here."""

_CHUNK = 65536
_COMPLAINT = 200  # bytes of standard error that the log shows


class Command:
    """Runs commands, one after the other, once a slot.

    Parameters
    ----------
    commands
        Programs with their arguments, by a name for the log.
    timeout
        How long each may run.
    output
        How much each may print.

    """

    def __init__(
        self,
        *,
        commands: dict[str, list[str]] | None = None,
        timeout: Duration = Duration(5),
        output: Size = Size(2**20),
    ) -> None:
        for name, words in (commands or {}).items():
            if not words:
                raise ConfigError(f"commands.{name} is empty: a program must stand there")
        self._commands = commands or {}
        self._timeout = float(timeout)
        self._output = int(output)
        self._soft = SoftErrors()

    def collect(self, time: int) -> Iterator[Message]:
        """Yield what each command prints."""
        for name, words in self._commands.items():
            try:
                payload = run(words, timeout=self._timeout, output=self._output)
            except OSError as error:
                self._soft.note(f"collector command: {name}: {error}")
                continue
            lines = decode(payload)
            for bad in lines.rejected:
                reason = f"line {bad.line}: {bad.rule}: {bad.original!r:.80}"
                self._soft.note(f"collector command: {name}: {reason}")
            for message in lines:
                yield _completed(message, time)


def run(words: Sequence[str], *, timeout: float, output: int = 2**20, given: bytes = b"") -> bytes:
    """Run a program with its arguments and return what it printed.

    `timeout` is in seconds, `output` the most bytes that it may print. What is `given` on its
    standard input must fit into a pipe, which is 64 KiB.

    Raises
    ------
    OSError
        where there is no such program, or it is not for us.
    ChildProcessError
        where it takes too long, prints too much or ends with an error; an OSError, too.

    """
    process = subprocess.Popen(  # noqa: S603 - the site's own configuration names it
        words,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    assert process.stdin is not None
    try:
        with contextlib.suppress(BrokenPipeError), process.stdin as pipe:  # it need not read
            pipe.write(given)
        printed, complaint = _read(process, monotonic() + timeout, timeout, output)
        code = process.wait()
    finally:
        # Also what the program left running: it would hold a pipe, or pile up.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        for pipe in filter(None, (process.stdout, process.stderr)):
            pipe.close()
    if code:
        raise ChildProcessError(f"ended with {code}: {complaint!r:.{_COMPLAINT}}")
    return printed


def _read(
    process: "subprocess.Popen[bytes]", deadline: float, timeout: float, output: int
) -> tuple[bytes, bytes]:
    """Read both outputs to their end; of the second only a beginning is kept."""
    assert process.stdout is not None
    assert process.stderr is not None
    late = ChildProcessError(f"took more than {timeout:g} s")
    printed, complaint = bytearray(), bytearray()
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ, printed)
        selector.register(process.stderr, selectors.EVENT_READ, complaint)
        while selector.get_map():
            ready = selector.select(max(0.0, deadline - monotonic()))
            if not ready:
                raise late
            for key, _ in ready:
                chunk = os.read(key.fd, _CHUNK)
                key.data.extend(chunk)
                if not chunk:
                    selector.unregister(key.fileobj)
            del complaint[_COMPLAINT:]
            if len(printed) > output:
                raise ChildProcessError(f"printed more than {output} bytes")
        if not _ended(process, deadline):
            raise late
    return bytes(printed), bytes(complaint)


def _ended(process: "subprocess.Popen[bytes]", deadline: float) -> bool:
    try:
        process.wait(max(0.0, deadline - monotonic()))
    except subprocess.TimeoutExpired:
        return False
    return True


def _completed(message: Message, time: int) -> Message:
    tags: Mapping[str, str] = {"type": "node", **message.tags}
    stamp = time if message.time is None else message.time
    return msgspec.structs.replace(message, tags=tags, time=stamp)
