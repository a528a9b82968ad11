"""Commands of a site's own."""

import os
import time
from pathlib import Path

import pytest

from ccpipe.config import Duration, Size
from ccpipe.errors import ConfigError
from ccpipe.message import Message
from ccpipe.node.collectors.command import Command, run

SLOT = 1_740_027_950_000_000_000


def collect(*words: str, timeout: float = 20, output: int = 2**20) -> list[Message]:
    """Return what one command gives."""
    command = Command(commands={"it": list(words)}, timeout=Duration(timeout), output=Size(output))
    return list(command.collect(SLOT))


def told_once(caplog: pytest.LogCaptureFixture) -> str:
    """Return the only line of the log."""
    [record] = caplog.records
    return record.message


def test_what_is_printed_becomes_messages() -> None:
    """A line's own tags and time win; without them it is the node's, and the slot's."""
    lines = "fan,hostname=bmc1 value=5i\nvolt,type=socket,type-id=1 value=1.5 1740027951\n"
    assert collect("printf", lines) == [
        Message("fan", {"type": "node", "hostname": "bmc1"}, 5, SLOT),
        Message("volt", {"type": "socket", "type-id": "1"}, 1.5, 1_740_027_951_000_000_000),
    ]


def test_no_shell_reads_the_words() -> None:
    """A blank, a dollar and a semicolon reach the program as they are."""
    [message] = collect("printf", "%s", 'm,type=node log="$HOME; a  b"')
    assert message.value == "$HOME; a  b"


def test_a_bad_line_costs_that_line(caplog: pytest.LogCaptureFixture) -> None:
    """The others are taken, and the log names the command, the line and the rule, once."""
    command = Command(commands={"ipmi": ["printf", "a value=1\\nb value=x\\nc value=3\\n"]})
    for _ in range(3):
        assert [message.name for message in command.collect(SLOT)] == ["a", "c"]
    assert told_once(caplog).startswith("collector command: ipmi: line 2: ")


def test_a_command_that_fails_costs_itself_only(caplog: pytest.LogCaptureFixture) -> None:
    """What it printed is not used, the next one is run, and the log has its own words."""
    command = Command(
        commands={
            "bad": ["sh", "-c", "echo a value=1; echo no luck >&2; exit 3"],
            "good": ["echo", "b value=2"],
        }
    )
    assert [message.name for message in command.collect(SLOT)] == ["b"]
    assert told_once(caplog) == "collector command: bad: ended with 3: b'no luck\\n'"


def test_a_program_that_is_not_there_is_named(caplog: pytest.LogCaptureFixture) -> None:
    """As the operating system says it."""
    assert collect("/nowhere/at-all") == []
    assert "collector command: it: [Errno 2]" in told_once(caplog)


def test_time_is_bounded(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """When it is up the whole process group is killed, also what the program began."""
    pids = tmp_path / "pids"
    script = f"sleep 600 & echo $! >> {pids}; echo $$ >> {pids}; sleep 600"
    assert collect("sh", "-c", script, timeout=0.5) == []
    assert told_once(caplog) == "collector command: it: took more than 0.5 s"
    written = [int(pid) for pid in pids.read_text().split()]
    deadline = time.monotonic() + 20
    while any(_is_alive(pid) for pid in written):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert len(written) == 2


def test_a_program_that_closes_its_output_and_stays_is_killed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The end of the output is not the end of the program."""
    assert collect("sh", "-c", "exec >&- 2>&-; sleep 600", timeout=0.3) == []
    assert told_once(caplog) == "collector command: it: took more than 0.3 s"


def _is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def test_output_is_bounded(caplog: pytest.LogCaptureFixture) -> None:
    """A program that prints without end is killed, and uses no memory without end."""
    assert collect("yes", output=10_000) == []
    assert told_once(caplog) == "collector command: it: printed more than 10000 bytes"


def test_much_standard_error_does_not_block(caplog: pytest.LogCaptureFixture) -> None:
    """A pipe that nobody reads would hang the program; the log shows the beginning."""
    script = "head -c 300000 /dev/zero | tr '\\0' x >&2; echo m value=1; exit 1"
    assert collect("sh", "-c", script) == []
    assert 200 < len(told_once(caplog)) < 300


def test_no_file_stays_open() -> None:
    """Pipes are closed, whatever happens."""
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    for _ in range(3):
        collect("false")
        collect("true")
        collect("sleep", "600", timeout=0.01)
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208


def test_nothing_configured_is_nothing_to_do() -> None:
    """The collector is on by default, and silent."""
    assert list(Command().collect(SLOT)) == []


def test_a_command_without_words_is_a_configuration_error() -> None:
    """It is named before anything starts."""
    with pytest.raises(ConfigError, match="commands.x is empty"):
        Command(commands={"x": []})


def test_a_program_may_be_given_something_and_need_not_read_it() -> None:
    """Its standard input is that, then its end; without anything it ends at once."""
    assert run(["cat"], timeout=20, given=b"fs_io_s\n") == b"fs_io_s\n"
    assert run(["cat"], timeout=20) == b""
    assert run(["true"], timeout=20, given=b"x" * 60_000) == b""
