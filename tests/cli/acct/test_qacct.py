"""``ccpipe acct gridengine --qacct`` against the real qacct: captured outputs, and the program."""

import os
import re
import shlex
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest

from ccpipe.cli.acct import qacct as acct_qacct
from ccpipe.formats.gridengine import Accounting
from tests.cli.acct.acct_command import Acct
from tests.conftest import program
from tests.paths import TEST_DATA

DATA = TEST_DATA / "gridengine"
CAPTURED = DATA / "qacct"

BOTH = {"-o": "user", "-u": "user", "-g": "group", "-P": "project", "-D": "department",
        "-A": "account", "-q": "queue", "-h": "node", "-pe": "pe", "-slots": "slots",
        "-ar": "ar"}  # fmt: skip
"""Flags of qacct that group without a value and filter with one."""
SAME = {"-b", "-e", "-d", "-t", "-m"}


class Session(NamedTuple):
    """A command line of qacct and its output."""

    arguments: str
    out: str
    code: int


def sessions(path: Path) -> list[Session]:
    """Read captured outputs: the command, what it printed, its exit status."""
    found = re.findall(
        r"^\$ qacct ?(.*?)\n(.*?)^\[exit status (\d+)\]\n",
        path.read_text(),
        re.DOTALL | re.MULTILINE,
    )
    return [Session(arguments.strip(), out, int(code)) for arguments, out, code in found]


def translated(arguments: str) -> list[str]:
    """Turn qacct's flags into ours, as docs/gridengine/acct.md has them."""
    words = shlex.split(arguments)
    ours = []
    while words:
        word = words.pop(0)
        value = words.pop(0) if words and not words[0].startswith("-") else None
        if word == "-j":
            ours += ["--list"] if value is None else ["-j", value]
        elif word in BOTH:
            column = BOTH[word]
            ours += ["--by", column] if value is None else [f"--{column}", value]
        elif word == "-E":
            ours += ["--ended"] if value is None else ["--ended", value]
        else:
            assert word in SAME, word
            ours += [word] if value is None else [word, value]
    return ours


MORE = sessions(CAPTURED / "more-sessions.txt")


def test_captured_sessions_are_found() -> None:
    """So that no test passes without reading any."""
    assert len(MORE) == (CAPTURED / "more-sessions.txt").read_text().count("$ qacct") > 60


@pytest.mark.parametrize("name", ["total", "o", "P", "pe", "slots", "j"])
def test_output_equals_captured_qacct_output(name: str, acct: Acct) -> None:
    """As printed by qacct 8.1.9 for a real cell's accounting file."""
    (session,) = sessions(CAPTURED / f"{name}.txt")
    ours = acct("gridengine", DATA / "accounting", "--qacct", *translated(session.arguments))
    assert ours == (session.code, session.out, "")


@pytest.mark.parametrize("session", MORE, ids=lambda session: session.arguments)
def test_filters_and_groupings_equal_qacct(session: Session, acct: Acct) -> None:
    """Each flag of the manual, alone and combined: same sums, same layout, same exit status."""
    file = CAPTURED / "more-accounting"
    ours = acct("gridengine", "-f", file, "--qacct", *translated(session.arguments))
    assert (ours.out, ours.code) == (session.out, session.code)


@pytest.mark.parametrize("arguments", ["", "-o -q", "-j", "-q all.q -pe", "-b 202611201042 -E"])
def test_output_equals_installed_qacct(arguments: str, tmp_path: Path, acct: Acct) -> None:
    """For the same file."""
    file = CAPTURED / "more-accounting"
    theirs = real_qacct(tmp_path, file, arguments)
    ours = acct("gridengine", "-f", file, "--qacct", *translated(arguments))
    assert (ours.code, ours.out) == (theirs.returncode, theirs.stdout.decode())


@pytest.mark.parametrize("end", [None, -1, -2, -3, -4, -5, -12, -13, -200])
def test_last_line_without_line_end_counts_as_in_qacct(
    end: int | None, tmp_path: Path, acct: Acct
) -> None:
    """Also if only the last three fields are cut off; else it is reported, with exit code 65."""
    file = tmp_path / "accounting"
    *lines, last = (DATA / "accounting").read_bytes().splitlines()[-10:]
    file.write_bytes(b"\n".join([*lines, last[:end]]))
    theirs = real_qacct(tmp_path, file, "-j")
    ours = acct("gridengine", "-f", file, "--qacct", "--list")
    assert ours.out == theirs.stdout.decode()
    assert ours.code == (65 if end == -200 else 0)


def real_qacct(tmp_path: Path, file: Path, arguments: str) -> subprocess.CompletedProcess[bytes]:
    """Run the installed qacct, which needs the two files of a cell."""
    qacct = program("qacct", "gridengine-client")
    common = tmp_path / "root" / "default" / "common"
    common.mkdir(parents=True)
    (common / "act_qmaster").write_text("localhost\n")
    (common / "bootstrap").write_text(
        "admin_user none\ndefault_domain none\nignore_fqdn false\nspooling_method classic\n"
        "spooling_lib libspoolc\nspooling_params /tmp\nbinary_path /usr/bin\n"
        "qmaster_spool_dir /tmp\nsecurity_mode none\nlistener_threads 2\nworker_threads 2\n"
        "scheduler_threads 1\n"
    )
    return subprocess.run(
        [qacct, "-f", file, *shlex.split(arguments)],
        env={"PATH": os.environ["PATH"], "TZ": "UTC", "SGE_ROOT": str(common.parents[1]),
             "SGE_CELL": "default", "SGE_QMASTER_PORT": "6444", "SGE_EXECD_PORT": "6445"},
        capture_output=True,
        check=False,
        timeout=30,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ("-o -j 137 -t 1-3", "job-array tasks 137.1-3 not found"),
        ("-o -j 138 -t 900-903", "job-array tasks 138.900-903 not found"),
        ("-o -j 999", "job 999 not found"),
        ("-j 137 -t 1-3", "job-array tasks 137.1-3 not found"),
    ],
)
def test_named_jobs_not_found_are_reported(
    arguments: str, error: str, tmp_path: Path, acct: Acct
) -> None:
    """As in the installed qacct, whether the jobs are listed or summed up."""
    theirs = real_qacct(tmp_path, DATA / "accounting", arguments)
    ours = acct("gridengine", "-f", DATA / "accounting", "--qacct", *translated(arguments))
    assert (ours.code, theirs.returncode) == (1, 1)
    assert error in ours.err
    assert b"not found" in theirs.stderr


def test_groups_with_zero_wallclock_are_printed(tmp_path: Path, acct: Acct) -> None:
    """Unlike qacct, which prints none of them (a bug)."""
    line = next(r for r in (DATA / "accounting").read_bytes().splitlines() if b":138:" in r)
    (tmp_path / "accounting").write_bytes(line + b"\n")
    shown = acct("gridengine", tmp_path / "accounting", "--qacct", "--by", "user")
    assert shown.out.splitlines()[2].split()[:4] == ["ben", "0", "0.005", "0.000"]


def test_category_with_colons_shifts_no_fields(tmp_path: Path, acct: Acct) -> None:
    """Real qacct reads a wrong field as maxvmem of such a line."""
    reporting = (DATA / "reporting.head").read_text().splitlines()
    odd = [line for line in reporting if ":acct:" in line and line.count(":") > 46]
    (tmp_path / "accounting").write_text("\n".join(line.split(":", 2)[2] for line in odd) + "\n")
    assert odd
    shown = acct("gridengine", tmp_path / "accounting", "--qacct", "--by", "ar")
    assert [line.split()[0] for line in shown.out.splitlines()[2:]] == ["0"]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["-o", "json"], "--qacct excludes -o, --count, --sort"),
        (["--count", "3"], "--qacct excludes -o, --count, --sort"),
        (["--by", "month"], "--by month: qacct has no such column"),
        (["-q", "@@group"], "--queue @@group: host groups are known only to qmaster"),
    ],
)
def test_options_without_qacct_layout_are_rejected(
    arguments: list[str], reason: str, acct: Acct
) -> None:
    """In qacct's layout they are a usage error with a reason."""
    shown = acct("gridengine", DATA / "accounting", "--qacct", *arguments)
    assert shown.code == 64
    assert reason in shown.err


def test_json_lines_have_same_layout(acct: Acct) -> None:
    """A record of another writer is shown with the same labels."""
    shown = acct("gridengine", DATA / "derived.jsonl", "--qacct", "--list")
    assert shown.code == 0
    labels = [line[:13].rstrip() for line in shown.out.splitlines()[1:46]]
    empty = [line[:13].rstrip() for line in acct_qacct.block(Accounting(job_number=1))]
    assert labels == [*empty[1:], "=" * 13]
