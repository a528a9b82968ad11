"""``ccpipe validate``: everything that is wrong, in every file, before anything runs."""

import gzip
import json
import socket
from pathlib import Path

import pytest

from ccpipe.bus.nats.server import NatsServer
from tests.cli.command import Ended, ccpipe, install

GOOD_RECIPE = """
[source]
use = "null"
[[translate]]
use = "select"
kinds = ["metric"]
[sink]
use = "null"
"""
BAD_RECIPE = """
[source]
use = "nul"
[[translate]]
use = "select"
kind = ["metric"]
[sink]
use = "null"
"""
GOOD_LINES = b"m,hostname=a,type=node value=1 1740027951\n"
BAD_LINES = b"m,hostname=a value=1 1740027951\nbroken value=\nm,hostname=a,type=node value=1 5\n"


@pytest.fixture(autouse=True)
def _in_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def write(name: str, content: str | bytes) -> Path:
    path = Path(name)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def findings(shown: Ended) -> list[dict[str, object]]:
    return [json.loads(line) for line in shown.out.splitlines()]


def test_validate_reports_good_files() -> None:
    """A recipe, a configuration and data: one line each and exit code 0."""
    write("r.toml", GOOD_RECIPE)
    write("c.toml", 'cluster = "fritz"')
    write("d.line", GOOD_LINES)
    write("d.lp.gz", gzip.compress(GOOD_LINES))
    shown = ccpipe("validate", "--no-connect", "r.toml", "c.toml", "d.line", "d.lp.gz")
    assert shown == Ended(
        0,
        "OK   r.toml, recipe, null → select → null\n"
        "OK   c.toml, configuration\n"
        "OK   d.line, line protocol, values 1, rejected 0\n"
        "OK   d.lp.gz, line protocol, values 1, rejected 0\n",
        "",
    )


def test_validate_reports_every_error_of_recipe() -> None:
    """With key path and suggestion for each, exit code 78."""
    write("r.toml", BAD_RECIPE)
    shown = ccpipe("validate", "--no-connect", "r.toml")
    assert shown.code == 78
    first, second, verdict = shown.out.splitlines()
    assert first == "r.toml: source.use: unknown source 'nul'; did you mean 'null'?"
    assert second == "r.toml: translate[0]: unknown key 'kind'; did you mean 'kinds'?"
    assert verdict.startswith("FAIL r.toml")


def test_validate_reports_unknown_subject_with_key_path() -> None:
    """Messages of its kind would be published elsewhere."""
    write("c.toml", "[bus.subjects]\nmetric = 'x'")
    shown = ccpipe("validate", "--no-connect", "c.toml")
    assert shown.code == 78
    assert "bus.subjects.metric: unknown; did you mean 'metrics'?" in shown.out


def test_validate_reports_each_bad_line() -> None:
    """File, line, column, reason, excerpt; --strict adds the rules that messages break."""
    write("d.txt", BAD_LINES)
    plain, strict = ccpipe("validate", "d.txt"), ccpipe("validate", "d.txt", "--strict")
    assert plain.code == strict.code == 65
    assert plain.out.startswith("d.txt:2: column 14: the value is neither")
    assert plain.out.splitlines()[1] == "FAIL d.txt, line protocol, values 2, rejected 1"
    assert "d.txt:1: tag type is missing: m" in strict.out.splitlines()
    assert strict.out.endswith("values 2, rejected 1, problems 1\n")


def test_validate_prints_json_object_per_finding_and_file() -> None:
    """With the position in separate fields."""
    write("d.txt", BAD_LINES)
    write("r.toml", BAD_RECIPE)
    finding, verdict, *recipe = findings(ccpipe("validate", "d.txt", "r.toml", "-o", "json"))
    assert (finding["file"], finding["line"], finding["column"]) == ("d.txt", 2, 14)
    assert finding["excerpt"] == "broken value="
    assert verdict == {
        "file": "d.txt", "what": "line protocol", "good": False, "values": 2, "rejected": 1,
    }  # fmt: skip
    assert [found.get("good") for found in recipe] == [None, None, False]


def test_validate_checks_all_files_and_worst_decides() -> None:
    """After a missing or unknown file, too; 78 has priority over 65, 66 and 64."""
    write("d.txt", BAD_LINES)
    write("x.bin", b"")
    write("r.toml", BAD_RECIPE)
    assert ccpipe("validate", "/nonexistent").code == 66
    assert ccpipe("validate", "x.bin", "none.lp").code == 66
    assert ccpipe("validate", "x.bin", "none.lp", "d.txt").code == 65
    shown = ccpipe("validate", "x.bin", "none.lp", "d.txt", "r.toml", "--no-connect")
    assert shown.code == 78
    verdicts = [line.split(",")[0] for line in shown.out.splitlines() if line.startswith("FAIL")]
    assert verdicts == ["FAIL x.bin", "FAIL none.lp", "FAIL d.txt", "FAIL r.toml"]


def test_validate_reads_any_file_as_data_with_format() -> None:
    """--from line needs no suffix."""
    write("x.bin", GOOD_LINES)
    shown = ccpipe("validate", "--from", "line", "-", "x.bin", stdin=BAD_LINES)
    assert shown.code == 65
    assert shown.out.splitlines()[-1] == "OK   x.bin, line protocol, values 1, rejected 0"


def test_validate_rejects_empty_list_of_files() -> None:
    """A script with an empty list of files must not pass."""
    assert ccpipe("validate").code == 64


async def test_validate_accepts_broker_that_answers(nats_server: NatsServer) -> None:
    """The one of the configuration."""
    write("c.toml", f'[bus]\nservers = ["{nats_server.url}"]')
    shown = ccpipe("validate", "c.toml")
    assert (shown.code, shown.out) == (0, "OK   c.toml, configuration\n")


def test_validate_exits_with_69_if_store_is_unreachable(unused_port: int) -> None:
    """After the given time; --no-connect does not try."""
    write("c.toml", f'[bus]\nservers = ["nats://127.0.0.1:{unused_port}"]')
    shown = ccpipe("validate", "c.toml", "--timeout", "300ms")
    assert shown.code == 69
    assert shown.out.startswith("c.toml: bus: no answer within 0.3 s\n")
    assert ccpipe("validate", "c.toml", "--no-connect").code == 0


PART = """
from ccpipe import Lines, Sink, UnavailableError

class Opened(Sink):
    takes = Lines

    async def __aenter__(self):
        raise UnavailableError("the vault is locked")

    async def write(self, records): ...
"""


def test_validate_opens_part_without_check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plug-in without ``check`` is opened and closed as by a bridge."""
    install(tmp_path, "ccpipe_vault", "[ccpipe.sinks]\nvault = ccpipe_vault:Opened\n", PART)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.syspath_prepend(str(tmp_path))
    write("r.toml", GOOD_RECIPE.replace('[sink]\nuse = "null"', '[sink]\nuse = "vault"'))
    shown = ccpipe("validate", "r.toml")
    assert (shown.code, "r.toml: sink: the vault is locked" in shown.out) == (69, True)
    assert ccpipe("validate", "r.toml", "--no-connect").code == 0


def test_validate_accepts_page_whose_port_a_bridge_uses(unused_port: int) -> None:
    """Whether the address is local is checked without binding the port."""
    sink = f'[sink]\nuse = "prometheus_scrape"\nlisten = "127.0.0.1:{unused_port}"'
    recipe = GOOD_RECIPE.replace('[sink]\nuse = "null"', sink)
    write("r.toml", recipe)
    write("s.toml", recipe.replace("127.0.0.1", "192.0.2.1"))
    with socket.create_server(("127.0.0.1", unused_port)):
        shown = ccpipe("validate", "r.toml")
    assert shown.code == 0, shown.out
    shown = ccpipe("validate", "s.toml")
    assert (shown.code, "s.toml: sink: listen: 192.0.2.1" in shown.out) == (78, True)


def test_validate_names_missing_command_of_grid_engine() -> None:
    """A bridge would run it every half minute in vain."""
    write("r.toml", '[source]\nuse = "qstat"\ncommand = ["qstat-nowhere"]\n[sink]\nuse = "null"\n')
    shown = ccpipe("validate", "r.toml")
    assert shown.code == 78
    assert "source: command: qstat-nowhere: no such program" in shown.out


def test_validate_exits_with_73_if_directory_cannot_be_created() -> None:
    """Like a bridge that writes there."""
    recipe = GOOD_RECIPE.replace(
        '[sink]\nuse = "null"', '[sink]\nuse = "parquet"\ndir = "r.toml/x"'
    )
    write("r.toml", recipe)
    shown = ccpipe("validate", "r.toml")
    assert (shown.code, "r.toml is not a directory" in shown.out) == (73, True), shown
    assert ccpipe("bridge", "r.toml", "--for", "1s").code == 73
