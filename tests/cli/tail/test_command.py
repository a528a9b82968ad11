"""``ccpipe tail`` and its options, for people and programs."""

import asyncio
import contextlib
import csv
import io
import itertools
import json
import os
import re
import signal
import sys
from collections.abc import AsyncIterator, Iterable

import pytest

from ccpipe.bus.nats.connection import Connection
from ccpipe.bus.nats.server import NatsServer
from ccpipe.cli.tail.options import LINE_KINDS, Options
from ccpipe.config import Bus
from ccpipe.errors import UnavailableError, UsageError
from ccpipe.formats.lineprotocol import decode
from ccpipe.telemetry import Telemetry
from tests.cli import command
from tests.cli.command import Ended, ccpipe, ended, environment, on_terminal


def test_stored_messages_begin_and_end_at_given_times() -> None:
    """With --all at the first one; --until ends the command."""
    since = Options(since="2025-02-20T14:30:00Z", until="2025-02-20T14:31:00Z")
    assert since.begin == 1740061800 * 10**9
    assert since.end == since.begin + 60 * 10**9
    assert not since.is_following
    everything = Options(all_=True)
    assert (everything.begin, everything.end, everything.is_following) == (None, None, True)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (Options(since="1m", all_=True), "exclude each other"),
        (Options(follow=False), "--no-follow needs"),
        (Options(until="1m"), "--until needs"),
        (Options(kind=["dead"], output="csv"), "--kind sonar and dead"),
    ],
)
def test_contradicting_options_are_rejected(options: Options, reason: str) -> None:
    """Before a connection is made."""
    with pytest.raises(UsageError, match=reason):
        options.check()


def test_envelopes_are_left_out_of_formats_for_messages() -> None:
    """Line protocol and CSV represent messages only."""
    assert Options(output="line").kinds == list(LINE_KINDS)
    assert {"sonar", "dead"} <= set(Options(output="line", raw=True).kinds)
    assert {"sonar", "dead"} <= set(Options(output="json").kinds)


PAYLOAD = b"""\
cpu_load,cluster=fritz,hostname=e1,type=node value=1.5 1740027951
mem_used,cluster=fritz,hostname=e2,type=node value=7i 1740027951123
job,cluster=fritz,function=start_job,hostname=e1,type=node event="{\\"a\\":1}\\nb" 1740027952
kernel,cluster=fritz,hostname=e2,loglevel=info,type=node log="a \\\\ b" 1740027951000000001
"""
BROKEN = PAYLOAD.replace(b"mem_used", b"broken value=\nmem_used")


async def start(server: NatsServer, *arguments: str) -> asyncio.subprocess.Process:
    return await command.start("tail", "--server", server.url, *arguments)


@contextlib.asynccontextmanager
async def publishing(
    server: NatsServer, *messages: tuple[str, Iterable[bytes]]
) -> AsyncIterator[None]:
    """Publish repeatedly on each subject, since it is unknown when tail has subscribed."""
    bus = Connection(Bus(servers=[server.url]), name="test", telemetry=Telemetry())

    async def publish() -> None:
        endless = [(subject, itertools.cycle(payloads)) for subject, payloads in messages]
        while True:
            for subject, payloads in endless:
                with contextlib.suppress(UnavailableError):
                    await bus.publish(subject, next(payloads))
            await asyncio.sleep(0.02)

    async with bus:
        task = asyncio.create_task(publish())
        try:
            yield
        finally:
            task.cancel()


async def seen(server: NatsServer, *arguments: str, payload: bytes = PAYLOAD) -> Ended:
    async with publishing(server, ("fritz.metrics", [payload])):
        return await command.finished("tail", "--server", server.url, *arguments)


async def test_line_output_decodes_to_equal_messages(nats_server: NatsServer) -> None:
    """It can be published again: times, whether in ``s`` or ``ns``, and escapes are kept."""
    shown = await seen(nats_server, "-o", "line", "--count", "4")
    assert shown.code == 0
    assert list(decode(shown.out.encode())) == list(decode(PAYLOAD))
    assert shown.err.startswith("4 lines in 1 payload from 2 nodes")


async def test_json_csv_and_table_show_equal_messages(nats_server: NatsServer) -> None:
    """One object a line; one head and one row each; a table for people."""
    names = ["cpu_load", "mem_used", "job", "kernel"]
    shown = await seen(nats_server, "-o", "json", "--count", "4")
    assert [json.loads(line)["name"] for line in shown.out.splitlines()] == names
    shown = await seen(nats_server, "-o", "csv", "--count", "8")
    rows = list(csv.DictReader(io.StringIO(shown.out, newline="")))
    assert [row["name"] for row in rows] == names * 2
    shown = await seen(nats_server, "--count", "4")
    head, *lines = shown.out.splitlines()
    assert head.split()[:4] == ["TIME", "NODE", "NAME", "VALUE"]
    assert [line.split()[2] for line in lines] == names


@pytest.mark.parametrize(
    ("filters", "names"),
    [
        ("--kind event --kind log --subject fritz.metrics", ["job", "kernel"]),
        ("--name mem_* --name job", ["mem_used", "job"]),
        ("--cluster f* --node *1 --kind metric", ["cpu_load"]),
    ],
)
async def test_filters_select_lines(
    nats_server: NatsServer, filters: str, names: list[str]
) -> None:
    """Each may be repeated; one value of each filter must match."""
    shown = await seen(nats_server, *filters.split(), "-o", "json", "--count", str(2 * len(names)))
    assert [json.loads(line)["name"] for line in shown.out.splitlines()] == names * 2
    assert "filtered out" in shown.err.splitlines()[-1]


async def test_cluster_option_selects_subjects(nats_server: NatsServer) -> None:
    """Events of cc-slurm-adapter have no tag cluster: the subject has it."""
    messages = [("fritz.metrics", [b"m,hostname=x value=1 1"]), ("woody.metrics", [b"m value=2 1"])]
    async with publishing(nats_server, *messages):
        shown = await ended(
            await start(nats_server, "--cluster", "fritz", "-o", "line", "--count", "3")
        )
    assert shown.out == "m,hostname=x value=1.0 1\n" * 3


async def test_overlapping_subjects_show_each_message_once(nats_server: NatsServer) -> None:
    """The broker delivers once for each subscription; tail counts once."""
    numbers = [b"m value=%d 1" % i for i in range(1000)]
    async with publishing(nats_server, ("a.b", numbers)):
        subjects = ["--subject", "a.>", "--subject", "*.b", "--subject", "a.b"]
        shown = await ended(await start(nats_server, *subjects, "-o", "line", "--count", "9"))
    values = [message.value for message in decode(shown.out.encode())]
    assert values == [values[0] + i for i in range(9)]  # type: ignore[operator]


async def test_raw_shows_payloads_unchanged(nats_server: NatsServer) -> None:
    """Sonar's JSON, or any bytes."""
    payload = b'{"meta":{"producer":"sonar"}}\xff'
    async with publishing(nats_server, ("fritz.sonar.sample", [payload])):
        process = await start(nats_server, "--raw", "--subject", "*.sonar.*", "--count", "2")
        out, _ = await asyncio.wait_for(process.communicate(), 60)
    assert out == (payload + b"\n") * 2


async def test_raw_with_filters_shows_payloads_with_matching_line(
    nats_server: NatsServer,
) -> None:
    """The whole payload, unchanged, with comments and bad lines."""
    both = [b"m,hostname=a value=1 1\n# comment\n", b"m,hostname=b value=1 1\nbroken\n"]
    async with publishing(nats_server, ("fritz.metrics", both)):
        shown = await ended(await start(nats_server, "--raw", "--node", "b", "--count", "4"))
    assert shown.out == "m,hostname=b value=1 1\nbroken\n" * 2


async def test_bad_lines_are_reported_and_counted(
    nats_server: NatsServer,
) -> None:
    """Subject, line, column, reason and excerpt on stderr; the other lines are shown."""
    shown = await seen(nats_server, "-o", "line", "--count", "4", payload=BROKEN)
    assert list(decode(shown.out.encode())) == list(decode(PAYLOAD))
    complaint, summary = shown.err.splitlines()
    assert complaint.startswith("fritz.metrics: line 2, column 14: the value is neither")
    assert summary.endswith("; 4 shown; 1 could not be read")


STRICT = b"m,hostname=a,type=node value=1 1740027951\nm,hostname=b value=T 1740027951\n"
BROKEN_RULES = ["tag type is missing", "a metric's value must be a number, not True"]


@pytest.mark.parametrize("output", ["table", "line", "json", "csv"])
async def test_strict_shows_broken_rules_of_each_message(
    nats_server: NatsServer, output: str
) -> None:
    """In a form that each format allows; line protocol stays valid."""
    shown = await seen(nats_server, "--strict", "-o", output, "--count", "2", payload=STRICT)
    assert shown.err.strip().endswith("; 2 shown; 1 break rules")
    rows = shown.out.splitlines()
    match output:
        case "table":
            assert [row.strip() for row in rows[3:]] == [f"^ {rule}" for rule in BROKEN_RULES]
        case "line":
            assert rows[2:] == [f"# ^ {rule}" for rule in BROKEN_RULES]
            assert list(decode(shown.out.encode())) == list(decode(STRICT))
        case "json":
            assert [json.loads(row)["problems"] for row in rows] == [[], BROKEN_RULES]
        case _:
            problems = [row["problems"] for row in csv.DictReader(rows)]
            assert problems == ["", "; ".join(BROKEN_RULES)]


async def test_stats_count_by_subject_kind_cluster_and_name(nats_server: NatsServer) -> None:
    """Printed at the end unless stdout is a terminal; with the number of nodes per cluster."""
    shown = await seen(nats_server, "--stats", "--count", "8")
    rows = [line.split() for line in shown.out.splitlines()]
    assert rows[0] == ["WHAT", "WHICH", "LINES", "PER", "SECOND", "NODES"]
    assert [row[:3] for row in rows[1:3]] == [
        ["subject", "fritz.metrics", "8"],
        ["kind", "metric", "4"],
    ]
    assert ["cluster", "fritz", "8"] in [row[:3] for row in rows]
    shown = await seen(nats_server, "--stats", "-o", "json", "--count", "8")
    stats = json.loads(shown.out)
    assert stats["nodes"] == {"fritz": 2}
    assert stats["names"]["job"]["lines"] == 2
    assert stats["names"]["job"]["rate"] == pytest.approx(2 / stats["seconds"])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_ctrl_c_prints_summary(nats_server: NatsServer, number: signal.Signals) -> None:
    """The exit code is 0."""
    async with publishing(nats_server, ("fritz.metrics", [PAYLOAD])):
        process = await start(nats_server, "-o", "line")
        assert process.stdout is not None
        await asyncio.wait_for(process.stdout.readline(), 60)
        shown = await ended(process, number)
    assert shown.code == 0
    assert " shown" in shown.err.splitlines()[-1]


async def test_tail_ends_quietly_when_reader_closes_pipe(nats_server: NatsServer) -> None:
    """As in ``ccpipe tail | head -1``."""
    ours, theirs = os.pipe()
    async with publishing(nats_server, ("fritz.metrics", [PAYLOAD])):
        process = await asyncio.create_subprocess_exec(
            *command.command("tail", "--server", nats_server.url, "-o", "line"),
            stdout=theirs, stderr=asyncio.subprocess.PIPE, env=environment(),
        )  # fmt: skip
        os.close(theirs)
        await asyncio.to_thread(os.read, ours, 1)
        os.close(ours)
        shown = await asyncio.wait_for(process.communicate(), 60)
    assert (process.returncode, shown[1]) == (0, b"")


async def test_tail_reconnects_after_server_is_killed(nats_server: NatsServer) -> None:
    """After a kill -9 of the broker the same tail shows lines again."""
    later = b"later,cluster=fritz,hostname=e1,type=node value=1 1740027951\n"
    async with publishing(nats_server, ("fritz.metrics", [PAYLOAD])):
        process = await start(nats_server, "-o", "line")
        assert process.stdout is not None
        await asyncio.wait_for(process.stdout.readline(), 60)
        assert nats_server.pid is not None
        os.kill(nats_server.pid, signal.SIGKILL)
        before = nats_server.pid
        while nats_server.pid == before:  # NatsServer starts it again
            await asyncio.sleep(0.02)
        async with publishing(nats_server, ("fritz.metrics", [later])), asyncio.timeout(60):
            while not (await process.stdout.readline()).startswith(b"later,"):
                pass
        assert (await ended(process, signal.SIGINT)).code == 0


async def test_terminal_shows_sample_and_number_of_lines_left_out(
    nats_server: NatsServer,
) -> None:
    """Limited in rate and width; NO_COLOR is obeyed."""
    flood = b"".join(b"m%d,hostname=a,type=node value=1 1740027951\n" % i for i in range(500))
    arguments = ["tail", "--server", nats_server.url, "--rate", "50", "--for", "300s"]
    async with publishing(nats_server, ("fritz.metrics", [flood])):
        shown = await asyncio.to_thread(
            on_terminal,
            *arguments,
            columns=40,
            until=lambda drawn: drawn.count(b"\n") > 150,
            NO_COLOR="1",
        )
    assert shown.code == 0
    assert "\x1b" not in shown.out
    assert max(map(len, shown.out.splitlines())) <= 40
    assert "lines left out; --rate 0 shows all" in shown.err
    counts = {
        what: int(count.replace(" ", ""))
        for count, what in re.findall(
            r"([0-9 ]+) (lines|shown|left out)", shown.err.splitlines()[-1]
        )
    }
    rows = [line for line in shown.out.splitlines() if not line.startswith("TIME")]
    assert len(rows) == counts["shown"]
    assert counts["shown"] + counts["left out"] == counts["lines"]
    assert len({row.split()[2] for row in rows}) > 10


@pytest.mark.parametrize("words", [["-o", "line"], ["-o", "json"], ["-o", "csv"], ["--raw"]])
async def test_control_characters_are_escaped_on_terminal(
    nats_server: NatsServer, words: list[str]
) -> None:
    """In formats for programs, too, which a pipe receives unchanged."""
    line = 'e,hostname=a,type=node event="\x1b]0;t\x07\u202e\x9b2J" 1740027951\n'.encode()
    arguments = ["tail", "--server", nats_server.url, *words, "--count", "1", "--for", "500s"]
    async with publishing(nats_server, ("fritz.events.e", [line])):
        shown = await asyncio.to_thread(on_terminal, *arguments)
    assert shown.code == 0
    assert "]0;t" in shown.out
    assert all(text.isprintable() for text in shown.out.split("\n"))


async def test_stats_are_redrawn_on_terminal(nats_server: NatsServer) -> None:
    """Each second, on one screen, and bad lines do not disturb them."""
    arguments = ["tail", "--server", nats_server.url, "--stats", "--for", "300s"]
    async with publishing(nats_server, ("fritz.metrics", [BROKEN])):
        shown = await asyncio.to_thread(
            on_terminal, *arguments, lines=8, until=lambda drawn: drawn.count(b"fritz.metrics") > 1
        )
    screens = [
        screen for screen in shown.out.split("\x1b[H\x1b[J")[1:] if "fritz.metrics" in screen
    ]
    assert len(screens) >= 2
    for screen in screens:
        assert "could not be read" in screen
        assert len(screen.splitlines()) <= 8
    assert len(shown.err.splitlines()) == 1


@pytest.mark.parametrize(
    "wrong", ["--stats -o line", "--stats --raw", "--count 0", "--rate -1", "--kind metrics"]
)
def test_invalid_options_are_rejected(wrong: str) -> None:
    """Before a connection is made, with the exit code of a usage error."""
    shown = ccpipe("tail", *wrong.split())
    assert (shown.code, shown.out) == (64, "")
    assert wrong.split(maxsplit=1)[0] in shown.err


async def test_tail_imports_no_slow_module_before_first_line(nats_server: NatsServer) -> None:
    """Imports delay the first line."""
    slow = (
        "rich", "prometheus_client", "psutil", "pyarrow", "numpy", "ccpipe.bus.nats.server",
        "ccpipe.registry", "ccpipe.translate", "ccpipe.jobs",
    )  # fmt: skip
    program = (
        "import sys\n"
        f"sys.argv = ['ccpipe', 'tail', '--count', '1', '--server', {nats_server.url!r}]\n"
        "from ccpipe.cli import main\n"
        "try: main()\n"
        f"finally: print('imported', [m for m in {slow} if m in sys.modules])"
    )
    async with publishing(nats_server, ("fritz.metrics", [PAYLOAD])):
        shown = await ended(
            await asyncio.create_subprocess_exec(
                sys.executable,
                "-c",
                program,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env=environment(),
            )
        )
    assert "cpu_load" in shown.out
    assert shown.out.endswith("imported []\n"), shown
