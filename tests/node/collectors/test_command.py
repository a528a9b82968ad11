"""Commands of a site's own."""

import itertools
import logging
import re

import pytest

from ccpipe.config import Duration, Publish, Site, Size
from ccpipe.errors import ConfigError
from ccpipe.message import Message
from ccpipe.node.agent.parts import AgentParts
from ccpipe.node.collectors.command import Command
from ccpipe.telemetry import Telemetry
from tests.node.fake_sampling import Clocks, OnTheseClocks, cut_off, slot_of

SLOT = 1_740_027_950_000_000_000


def collect(*words: str, timeout: float = 20, output: int = 2**20) -> list[Message]:
    command = Command(
        commands={"it": list(words)}, timeout=Duration(timeout), max_output_bytes=Size(output)
    )
    return list(command.collectors()["it"].collect(SLOT))


def logged_once(caplog: pytest.LogCaptureFixture) -> str:
    [record] = caplog.records
    return record.message


def test_command_output_becomes_messages() -> None:
    """A line's own tags and time win; the defaults are the node's type and the slot's time."""
    lines = "fan,hostname=bmc1 value=5i\nvolt,type=socket,type-id=1 value=1.5 1740027951\n"
    assert collect("printf", lines) == [
        Message("fan", {"type": "node", "hostname": "bmc1"}, 5, SLOT),
        Message("volt", {"type": "socket", "type-id": "1"}, 1.5, 1_740_027_951_000_000_000),
    ]


def test_command_runs_without_shell() -> None:
    [message] = collect("printf", "%s", 'm,type=node log="$HOME; a  b"')
    assert message.value == "$HOME; a  b"


def test_command_skips_bad_line(caplog: pytest.LogCaptureFixture) -> None:
    """Other lines are accepted; the log names the command, the line and the rule, once."""
    command = Command(commands={"ipmi": ["printf", "a value=1\\nb value=x\\nc value=3\\n"]})
    for _ in range(3):
        messages = command.collectors()["ipmi"].collect(SLOT)
        assert [message.name for message in messages] == ["a", "c"]
    assert logged_once(caplog).startswith("collector command: ipmi: line 2: ")


def test_command_logs_reason_of_failure(caplog: pytest.LogCaptureFixture) -> None:
    assert collect("sh", "-c", "echo a value=1; echo no luck >&2; exit 3") == []
    assert logged_once(caplog) == "collector command: it: ended with 3: no luck"


def test_command_names_missing_program(caplog: pytest.LogCaptureFixture) -> None:
    assert collect("/nowhere/at-all") == []
    assert "collector command: it: [Errno 2]" in logged_once(caplog)


def test_command_limits_time_and_output(caplog: pytest.LogCaptureFixture) -> None:
    assert collect("sleep", "600", timeout=0.2) == []
    assert collect("yes", output=10_000) == []
    assert [record.message for record in caplog.records] == [
        "collector command: it: took more than 0.2 s",
        "collector command: it: printed more than 10000 bytes",
    ]


async def test_command_that_hangs_does_not_delay_others(
    caplog: pytest.LogCaptureFixture, clocks: Clocks
) -> None:
    """Their lines are in each slot's own batch, even if the timeout exceeds the interval."""
    caplog.set_level(logging.INFO)
    commands = {"bad": ["sleep", "600"], "good": ["echo", "good value=1"], "no": ["/nowhere"]}
    table = {"command": {"commands": commands, "timeout": "20s"}}
    site = Site(publish=Publish(collectors=table))
    parts = AgentParts.of(site, None, Telemetry())
    collectors = {
        name: one
        for name, one in parts.of_metrics().collectors.items()
        if name.startswith("command.")
    }
    assert list(collectors) == ["command.bad", "command.good", "command.no"]
    sampler = OnTheseClocks(clocks, collectors=collectors, hanging=["command.bad"])
    slots = [slot_of(batch) async for batch in sampler.some(3)]
    assert [b - a for a, b in itertools.pairwise(slots)] == [10 * 10**9] * 2
    assert re.search(cut_off("command.bad"), caplog.text)
    assert sampler.states()["command.bad"]["state"] == "late"
    assert sampler.states()["command.good"]["state"] == "on"


def test_command_does_nothing_without_configuration() -> None:
    """The collector is on by default, without a thread."""
    assert Command().collectors() == {}


def test_command_rejects_empty_words() -> None:
    with pytest.raises(ConfigError, match=r"commands\.x is empty"):
        Command(commands={"x": []})
