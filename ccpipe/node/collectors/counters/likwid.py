"""Metrics of LIKWID groups such as ``MEM_DP``, through its library (LIKWID 5).

Disabled unless `groups` is set. Metric names are the same as in the collector `perf`, which works
without LIKWID: disable one of the two, since both need the same counters. Several groups are
measured in turn, one interval each, and `flops_any` uses the latest values of both precisions.
Users running LIKWID interfere with it, as with any program that uses the counters; see
``likwid.lock`` in LIKWID's manual.

The library runs in a separate process, because it exits if it finds no counters. It needs root,
LIKWID's access daemon, or a library built for perf_event.
"""

import contextlib
import errno
import os
import selectors
import signal
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from time import monotonic
from typing import Literal, NamedTuple

import msgspec

from ccpipe.config import Duration
from ccpipe.errors import ConfigError
from ccpipe.message import Message, metric
from ccpipe.node.linux import likwid_reader, proc
from ccpipe.node.sampling.collector import Metric

_BOTH = ("node", "hwthread")
METRICS = (
    Metric("ipc", "", float, "instructions per cycle", ("hwthread",)),
    Metric("flops_dp", "Flops/s", float, "double-precision operations", _BOTH),
    Metric("flops_sp", "Flops/s", float, "single-precision operations", _BOTH),
    Metric(
        "flops_any", "Flops/s", float, "flops_sp + 2 flops_dp", _BOTH
    ),
    Metric(
        "mem_bw", "MByte/s", float, "read from and written to the memory", ("node", "socket")
    ),
)  # fmt: skip

_FLOPS = {"DP [MFLOP/s]": "flops_dp", "SP [MFLOP/s]": "flops_sp"}
_MEGA = 1e6
_CYCLES = "CPI"
_BANDWIDTH = "Memory bandwidth [MBytes/s]"

_CHUNK = 65536
_MAX_ANSWER = 2**22
_MAX_OUTPUT = 4096
_MAX_REASON = 200

Values = Sequence[float | None]  # of each hardware thread


class _HwThread(NamedTuple):
    number: int
    socket: str


class Likwid:
    """Measurements of LIKWID; the first sample is empty.

    Parameters
    ----------
    groups
        LIKWID's groups, as `likwid-perfctr -a` lists them for the processor.
    metrics
        Further metrics of these groups, keyed by LIKWID's name, such as `"L3 bandwidth [MBytes/s]"
        = "l3_bw"`; reported per hwthread, as in LIKWID.
    hwthreads
        Metrics to report for each hardware thread as well, as shell patterns.
    access
        How LIKWID reads the counters: `direct`, `accessdaemon` or `perf_event`; default: as it was
        built.
    library
        Path or name of LIKWID's library.
    timeout
        Time limit for starting, and for each answer.
    root
        Root of the file system that describes the hardware; set it to read a captured tree.

    """

    def __init__(
        self,
        *,
        groups: Sequence[str] = (),
        metrics: dict[str, str] | None = None,
        hwthreads: Sequence[str] = ("ipc", "flops_any"),
        access: Literal["", "direct", "accessdaemon", "perf_event"] = "",
        library: str = "liblikwid.so",
        timeout: Duration = Duration(15),
        root: str = "/",
    ) -> None:
        for group in groups:
            if not group or "," in group:
                raise ConfigError(f"groups: not a group of LIKWID: {group!r}")
        self._groups = groups
        self._metrics = metrics or {}
        self._hwthreads = hwthreads
        self._words = [library, access]
        self._timeout = float(timeout)
        self._root = Path(root)
        self._there: list[_HwThread] = []
        self._reader: _Reader | None = None
        self._flops: dict[str, Values] = {}

    def collect(self, time: int) -> Iterator[Message]:
        if not self._groups:
            raise FileNotFoundError(errno.ENOENT, "no groups are configured")
        if self._reader is None:
            self._there = self._hwthreads_there()
            threads = ",".join(str(thread.number) for thread in self._there)
            self._flops = {}
            self._reader = _Reader([*self._words, threads, ",".join(self._groups)], self._timeout)
            return
        try:
            measured = self._reader.ask() if self._reader.counts() else {}
        except OSError:
            self.end()
            raise
        yield from self._messages(measured, time)

    def end(self) -> None:
        if self._reader is not None:
            self._reader.end()
            self._reader = None

    def _hwthreads_there(self) -> list[_HwThread]:
        directory = self._root / "sys/devices/system/cpu"
        online = proc.listed(str(directory / "online"), proc.text(directory / "online"))
        return [
            _HwThread(
                number, proc.text(directory / f"cpu{number}/topology/physical_package_id").strip()
            )
            for number in online
        ]

    def _messages(self, measured: Mapping[str, Values], time: int) -> Iterator[Message]:
        for name, values in self._by_hwthread(measured):
            if name in self._metrics.values() or proc.matches(name, self._hwthreads):
                for thread, value in zip(self._there, values, strict=True):
                    if value is not None:
                        tags = {"type": "hwthread", "type-id": str(thread.number)}
                        yield metric(name, value, time=time, tags=tags)
            if name.startswith("flops_") and None not in values:
                total = sum(value for value in values if value is not None)
                yield metric(name, total, time=time, tags={"type": "node"})
        yield from self._bandwidth(measured.get(_BANDWIDTH, ()), time)

    def _by_hwthread(self, measured: Mapping[str, Values]) -> Iterator[tuple[str, Values]]:
        for theirs, ours in self._metrics.items():
            if theirs in measured:
                yield ours, measured[theirs]
        if _CYCLES in measured:
            yield "ipc", [1 / value if value else None for value in measured[_CYCLES]]
        for theirs, ours in _FLOPS.items():
            if theirs in measured:
                self._flops[ours] = [
                    None if value is None else value * _MEGA for value in measured[theirs]
                ]
                yield ours, self._flops[ours]
        if not _FLOPS.keys().isdisjoint(measured) and len(self._flops) == len(_FLOPS):
            pairs = zip(self._flops["flops_dp"], self._flops["flops_sp"], strict=True)
            yield (
                "flops_any",
                [None if dp is None or sp is None else 2 * dp + sp for dp, sp in pairs],
            )

    def _bandwidth(self, values: Values, time: int) -> Iterator[Message]:
        """Yield the traffic of sockets; LIKWID reports it for one hardware thread of each."""
        known: defaultdict[str, list[float]] = defaultdict(list)
        for thread, value in zip(self._there, values, strict=False):
            known[thread.socket] += [] if value is None else [value]
        for socket, found in known.items():
            if found:
                tags = {"type": "socket", "type-id": socket}
                yield metric("mem_bw", float(sum(found)), time=time, tags=tags)
        if known and all(known.values()):
            total = float(sum(map(sum, known.values())))
            yield metric("mem_bw", total, time=time, tags={"type": "node"})


class _Reader:
    """A process that measures with LIKWID's library; it ends with this process at the latest."""

    def __init__(self, words: Sequence[str], timeout: float) -> None:
        program = str(Path(likwid_reader.__file__))
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 - the process writes to it
        self._timeout = timeout
        self._counts_by = monotonic() + timeout
        self._counts = False
        self._text = b""
        self._process = subprocess.Popen(  # noqa: S603 - our own program
            [sys.executable, "-I", "-S", program, *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._output,
            start_new_session=True,
        )

    def __del__(self) -> None:
        self.end()

    def counts(self) -> bool:
        """Return whether measuring has started; raises OSError if it never will."""
        if not self._counts:
            try:
                self._line(0)
            except TimeoutError:
                if monotonic() > self._counts_by:
                    raise self._failure(f"nothing in {self._timeout:g} s") from None
            except BrokenPipeError as error:
                raise self._failure(str(error.strerror)) from None
            else:
                self._counts = True
        return self._counts

    def _failure(self, otherwise: str) -> OSError:
        self.end()
        reason = _first_line(self._text) or otherwise
        return PermissionError(errno.EACCES, f"LIKWID cannot count here: {reason}")

    def ask(self) -> dict[str, list[float | None]]:
        assert self._process.stdin is not None
        self._process.stdin.write(b"\n")
        self._process.stdin.flush()
        return msgspec.json.decode(self._line(self._timeout), type=dict[str, list[float | None]])

    def end(self) -> None:
        """End the process, and those that the library started."""
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._output.seek(0)
            self._text = self._output.read(_MAX_OUTPUT)
            self._output.close()
        for pipe in filter(None, (self._process.stdin, self._process.stdout)):
            with contextlib.suppress(OSError):
                pipe.close()

    def _line(self, timeout: float) -> bytes:
        assert self._process.stdout is not None
        line = b""
        deadline = monotonic() + timeout
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            while not line.endswith(b"\n"):
                if not selector.select(max(0.0, deadline - monotonic())):
                    raise TimeoutError(errno.ETIMEDOUT, f"no answer in {timeout:g} s")
                chunk = os.read(self._process.stdout.fileno(), _CHUNK)
                line += chunk
                if not chunk or len(line) > _MAX_ANSWER:
                    raise BrokenPipeError(errno.EPIPE, "the process that reads LIKWID has ended")
        return line


def _first_line(output: bytes) -> str:
    """Return the first line of its output, which names the cause."""
    lines = (line.strip() for line in output.decode("utf-8", "replace").splitlines())
    return next(filter(None, lines), "").rpartition("] ")[2][:_MAX_REASON]
