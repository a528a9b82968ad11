"""Sonar's JSON on the command line: there and back, for others, and held to the rules."""

import gzip
import json
from pathlib import Path

import pytest

from ccpipe.formats.lineprotocol import decode
from ccpipe.formats.sonar import decode as decode_sonar
from ccpipe.formats.sonar import encode as encode_sonar
from tests.cli.command import ccpipe
from tests.formats.sonar import examples
from tests.translate.sonar.sonar_samples import sample
from tests.translate.sonar.test_sonar_to_cc_jobs import COMPLETED, PENDING, RUNNING, envelope

ENVELOPES = [
    sample(0, cpus=(100,)),
    envelope(-40, PENDING),
    envelope(10, RUNNING),
    sample(60, cpus=(130,)),
    envelope(600, COMPLETED),
]
SONAR = b"".join(map(encode_sonar, ENVELOPES))
BAD = (
    b'{"meta":{"producer":"x","version":"1"},"data":{"type":"job","attributes":{"time":"noon"}}}\n'
)


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """Write an archive with one bad envelope on its second line."""
    path = tmp_path / "0+sample-c1.json"
    first, rest = SONAR.split(b"\n", 1)
    path.write_bytes(first + b"\n" + BAD + rest)
    return path


def test_sonar_round_trip_through_lines_is_lossless(tmp_path: Path) -> None:
    """Through a pipe of two commands, byte for byte; gzip is decompressed."""
    packed = tmp_path / "0+sample-c1.json.gz"
    packed.write_bytes(gzip.compress(SONAR))
    lines = ccpipe("convert", "--from", "sonar", "--to", "line", packed)
    assert (lines.code, lines.err) == (0, "")
    assert {m.name for m in decode(lines.out.encode())} >= {"cpu_used", "job", "sonar"}
    back = ccpipe("convert", "--to", "sonar", stdin=lines.out.encode())
    assert (back.code, back.err, back.out.encode()) == (0, "", SONAR)


def test_lines_without_envelopes_become_envelopes(archive: Path) -> None:
    """From metrics and events alone, with the data that they contain."""
    lines = ccpipe("convert", "--from", "sonar", "--to", "line", "--no-envelopes", archive)
    assert "event=" in lines.out
    assert not [m for m in decode(lines.out.encode()) if m.name == "sonar"]
    back = ccpipe("convert", "--to", "sonar", stdin=lines.out.encode())
    made = decode_sonar(back.out.encode(), strict=True)
    assert made.rejected == []
    kinds = [e.data.type for e in made if e.data]
    assert sorted(kinds) == ["job", "job", "sample", "sample"]


def test_bad_envelope_is_reported_and_others_are_converted(archive: Path) -> None:
    """File, line, path, rule and value; exit code 65."""
    shown = ccpipe("convert", "--from", "sonar", "--to", "json", archive)
    assert shown.code == 65
    first, summary = shown.err.splitlines()
    assert first.startswith(f"{archive}:2: $.data.attributes.time: Timestamp must be a time")
    assert first.endswith(": 'noon'")
    assert summary.startswith("ccpipe: 1 problem, reported above; ")
    rows = [json.loads(line) for line in shown.out.splitlines()]
    assert [row["name"] for row in rows if row["name"] == "sonar"] == ["sonar"] * 5


def test_sonar_is_rewritten_for_profile(archive: Path) -> None:
    """From Sonar's own numbers to the specification's, for any of the profiles."""
    shown = ccpipe(
        "convert", "--from", "sonar", "--to", "sonar", "--to-sonar-profile", "sonar", archive
    )
    assert shown.code == 65
    job = json.loads(shown.out.splitlines()[1])["data"]
    assert (job["type"], job["attributes"]["slurm_jobs"][0]["time_limit"]) == ("job", 5402)
    back = ccpipe(
        "convert", "--from", "sonar", "--sonar-profile", "sonar", "--to", "sonar",
        stdin=shown.out.encode(),
    )  # fmt: skip
    assert back.out.replace("+00:00", "Z").encode() == SONAR  # Sonar knows no Z


def test_unconvertible_lines_are_reported() -> None:
    """An invalid line, an event without an envelope, a metric without a timestamp."""
    lines = b'broken\nsonar,function=sample event="{" 5\ncpu_load,hostname=c1,type=node value=1\n'
    shown = ccpipe("convert", "--to", "sonar", stdin=lines)
    assert (shown.code, shown.out) == (65, "")
    assert len(shown.err.splitlines()) == 4
    assert "4" not in shown.err.splitlines()[0]
    assert shown.err.splitlines()[-1].startswith("ccpipe: 3 problems, reported above; 0 envelopes")


def test_validate_reports_each_broken_rule(archive: Path) -> None:
    """Path, rule and value of each; exit code 65."""
    shown = ccpipe("validate", "--strict", "--from", "sonar", archive)
    assert shown.code == 65
    reported = shown.out.splitlines()
    place = f"{archive}:2: $.data.attributes"
    assert any(line.startswith(f"{place}.time: Timestamp") for line in reported)
    assert any(line.startswith(f"{place}.cluster: Hostname") for line in reported)
    assert reported[-1].endswith("Sonar's JSON, envelopes 5, rejected 1")


def test_validate_prints_json(archive: Path) -> None:
    """One object for each rule, for scripts."""
    archive.write_bytes(archive.read_bytes() + b'{"data":7}\n{]\n')
    shown = ccpipe("validate", "--from", "sonar", "-o", "json", archive)
    rows = [json.loads(line) for line in shown.out.splitlines()]
    assert rows[0]["path"] == "$.data.attributes.time"
    assert (rows[0]["line"], rows[0]["value"]) == (2, "noon")
    assert (rows[1]["line"], rows[1]["path"]) == (7, "$.data")
    assert rows[2]["line"] == 8
    assert rows[-1]["good"] is False


def test_validate_accepts_good_files() -> None:
    """Standard input too; exit code 0."""
    shown = ccpipe("validate", "--strict", "--from", "sonar", "-", stdin=SONAR)
    assert shown.code == 0
    assert shown.out == "OK   -, Sonar's JSON, envelopes 5, rejected 0\n"


def test_validate_names_incompatible_source_and_sink(tmp_path: Path) -> None:
    """A sink that does not accept the type of record of its source cannot work."""
    recipe = tmp_path / "bad.toml"
    recipe.write_text('[source]\nuse = "nats"\ncodec = "sonar"\n[sink]\nuse = "null"\n')
    shown = ccpipe("validate", "--no-connect", recipe)
    assert shown.code == 78
    assert (
        "the source (NatsSource) gives envelopes, but the sink (NullSink) takes lines" in shown.out
    )


CSV = (
    "v=0.13.200,time=2025-02-27T01:00:01+01:00,host=c1,user=ann,cmd=a,job=7,pid=1,cpu%=50\n"
    "v=0.13.200,host=c1,user=ann,cmd=a\n"
    "v=0.13.200,time=2025-02-27T01:05:01+01:00,host=c1,user=ann,cmd=a,job=7,pid=1,cpu%=50\n"
)


def test_old_csv_is_read_like_json() -> None:
    """It is recognized by its beginning; a bad line is reported by its number."""
    shown = ccpipe(
        "convert", "--from", "sonar", "--to", "line", "--no-envelopes", stdin=CSV.encode()
    )
    assert shown.code == 65
    assert shown.err.splitlines()[0] == "stdin:2: time is missing"
    assert shown.out.count("job_cpu_used,") == 2
    checked = ccpipe("validate", "--from", "sonar", "-", stdin=CSV.encode())
    assert checked.out.splitlines()[-1].endswith("envelopes 2, rejected 1")


def test_validate_chooses_profile_by_producer() -> None:
    """Sonar's +00:00 is valid in Sonar's output, unless the specification is requested."""
    text = examples.SAMPLE.encode()
    assert ccpipe("validate", "--strict", "--from", "sonar", "-", stdin=text).code == 0
    by_spec = ("validate", "--strict", "--sonar-profile", "spec", "--from", "sonar", "-")
    assert ccpipe(*by_spec, stdin=text).code == 65
    other = text.replace(b'"sonar"', b'"other"')
    assert ccpipe("validate", "--strict", "--from", "sonar", "-", stdin=other).code == 65


def test_sonar_numbers_are_converted_without_flag() -> None:
    """A limit of 20160 minutes, which Sonar writes as seconds."""
    shown = ccpipe("convert", "--from", "sonar", "--to", "sonar", stdin=examples.JOBS.encode())
    job = json.loads(shown.out)["data"]["attributes"]["slurm_jobs"][0]
    assert job["time_limit"] == 20162
