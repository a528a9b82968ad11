"""``ccpipe send``: lines from files and pipes onto the bus."""

import asyncio
import signal
import subprocess
from pathlib import Path

from ccpipe.bus.nats.server import NatsServer
from ccpipe.config import Site
from ccpipe.formats import dead_letters
from tests.cli.command import Ended, ccpipe, command, environment
from tests.servers.nats.daemon import nats_daemon
from tests.servers.nats.stored import stored

LINES = b"".join(
    b"m,cluster=fox.test,hostname=n1,type=node value=%d %d\n" % (i, 1740000000 + i)
    for i in range(700)
)
EVENT = b'job,cluster=fox.test,function=f,hostname=n1,type=node event="{}" 1740000000\n'


async def send(site: Site, *arguments: object, stdin: bytes = b"") -> Ended:
    given = (*arguments, "--server", site.bus.servers[0], "--cluster", site.cluster)
    return await asyncio.to_thread(ccpipe, "send", *given, stdin=stdin)


async def test_send_publishes_on_subjects_of_kinds(
    site: Site, nats_server: NatsServer, tmp_path: Path
) -> None:
    """Files and standard input in order; sent twice they are stored once."""
    (tmp_path / "a.lp").write_bytes(LINES)
    for _ in range(2):
        done = await send(site, tmp_path / "a.lp", "-", stdin=EVENT)
        assert done.code == 0
        assert "701 records read, 701 sent, 0 left out" in done.err
    found = await stored(nats_server)
    metrics = [payload for subject, payload in found if subject == "fox%2Etest.metrics"]
    assert b"".join(metrics).count(b"\n") == 700
    assert [subject for subject, _ in found if "events" in subject] == ["fox%2Etest.events.job"]


async def test_send_reports_and_keeps_bad_line(site: Site, tmp_path: Path) -> None:
    """The others are sent; it is named by number and kept in the file of --rejected."""
    kept = tmp_path / "bad.lp"
    done = await send(site, "--rejected", kept, stdin=LINES + b"broken\n" + LINES)
    assert done.code == 65
    assert "dead letter from stdin line 701" in done.err
    assert done.err.endswith("ccpipe: 1 line left out, reported above\n")
    with kept.open("rb") as file:
        (letter,) = dead_letters.read(file)
    assert isinstance(letter, dead_letters.StoredDeadLetter)
    assert (letter.original, letter.line) == (b"broken", 701)


def test_dry_run_of_send_prints_lines_with_their_subjects(tmp_path: Path) -> None:
    """Without a broker; bad lines are reported, but not kept."""
    kept = tmp_path / "bad.lp"
    given = ("send", "--dry-run", "--rejected", kept, "--cluster", "fox.test")
    done = ccpipe(*given, stdin=LINES[: LINES.index(b"\n") + 1] + EVENT + b"broken\n")
    assert done.code == 65
    metric, event = done.out.splitlines()
    assert metric.startswith("fox%2Etest.metrics m,cluster=fox.test,")
    assert event.startswith("fox%2Etest.events.job job,cluster=fox.test,")
    assert "left out: stdin line 3" in done.err
    assert not kept.exists()


async def test_send_keeps_rate(site: Site) -> None:
    """By the clock: 700 lines at 1000 a second take time."""
    loop = asyncio.get_running_loop()
    begun = loop.time()
    done = await send(site, "--rate", 1000, stdin=LINES)
    assert done.code == 0
    assert loop.time() - begun >= 0.7  # a lower bound is valid on any machine


async def test_send_obeys_signals_while_waiting_for_input(site: Site) -> None:
    """Earlier input is sent; nothing keeps the process running."""
    given = ("send", "--server", site.bus.servers[0], "--cluster", site.cluster)
    process = subprocess.Popen(
        command(*given), stdin=subprocess.PIPE, stderr=subprocess.PIPE, env=environment()
    )
    assert process.stdin is not None
    assert process.stderr is not None
    process.stdin.write(LINES + b"broken\n")
    process.stdin.flush()
    while b"left out: stdin" not in (logged := process.stderr.readline()):
        assert logged, "it has ended"
    process.send_signal(signal.SIGTERM)
    assert await asyncio.to_thread(process.wait, 60) == 65
    assert b"700 records read, 700 sent" in process.stderr.read()
    process.stdin.close()
    process.stderr.close()


async def test_send_reports_denied_subject(tmp_path: Path) -> None:
    """It ends with the number of lines sent; the others are kept on request."""
    configuration = f"""
    jetstream {{ store_dir: "{tmp_path / "js"}" }}
    authorization {{ users: [ {{ user: u, password: p, permissions {{
      publish: ["$JS.API.>", "*.metrics"], subscribe: ["_INBOX.>"] }} }} ] }}
    """
    kept = tmp_path / "left.lp"
    async with nats_daemon(tmp_path, configuration) as port:
        given = ("send", "--server", f"nats://u:p@127.0.0.1:{port}", "--cluster", "fox.test")
        done = await asyncio.to_thread(ccpipe, *given, "--rejected", kept, stdin=LINES + EVENT)
        again = await asyncio.to_thread(ccpipe, *given, stdin=EVENT, CCPIPE_BUS__JETSTREAM="false")
    reason = "the server does not permit us to publish on fox%2Etest.events.job"
    assert done.code == 77
    assert done.err.endswith(f"ccpipe: 700 lines sent, 1 line left out: {reason}\n")
    with kept.open("rb") as file:
        assert [letter.original for letter in dead_letters.read(file)] == [EVENT.rstrip()]  # type: ignore[union-attr]
    assert again.code == 77
    assert again.err.endswith(f"ccpipe: 0 lines sent, 1 line left out: {reason}\n")


def test_send_rejects_negative_rate() -> None:
    """Exit code 64."""
    assert ccpipe("send", "--rate", "-1", stdin=LINES).code == 64
