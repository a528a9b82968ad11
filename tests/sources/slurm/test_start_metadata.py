"""Scripts and descriptions of jobs that start."""

import json
import logging
from typing import Any

import pytest
from msgspec.structs import replace

from ccpipe.config import Interval, Site
from ccpipe.formats.lineprotocol import decode, encode
from ccpipe.formats.sonar import encode as encode_sonar
from ccpipe.jobs import Jobs
from ccpipe.sources.slurm import start_metadata
from ccpipe.sources.slurm.source import Slurm
from ccpipe.sources.slurm.start_metadata import MAX_BYTES, as_text
from ccpipe.translate.slurm.to_cc import SlurmToCc
from ccpipe.translate.slurm.to_sonar import SlurmToSonar
from tests.sources.slurm.programs import Programs, scontrol_job, squeue_job

SCRIPT = '#!/bin/bash -l\n#SBATCH --comment="a,b \\ ü"\n\tsrun --x=1 \x1b[0m\r\n'


class Bridge:
    """A source that sends scripts and descriptions, and the translator behind it."""

    def __init__(self, programs: Programs, **options: Any) -> None:
        options = {"job_script": True, "slurm_info": True, **options}
        self.programs = programs
        self.source = Slurm(
            site=Site(cluster="fox", hostname="master"), bin_dir=str(programs.directory),
            poll_interval=Interval(0.001), accounting=False, **options,
        )  # fmt: skip
        self.batches = self.source.batches()
        self.translator = SlurmToCc(site=self.source.site)
        self.jobs: list[Jobs] = []

    async def poll(self) -> list[dict[str, Any]]:
        found = []
        is_last = False
        while not is_last:
            batch = await anext(self.batches)
            assert batch.ack
            await batch.ack()
            is_last = not batch.records
            self.jobs.append(batch.records)
            made = self.translator.feed(batch.records)
            for message in decode(encode(made, precision="ns")):
                assert "secret" not in str(message.value) or message.name == "job"
                if message.tags.get("function") == "start_job":
                    found.append(json.loads(str(message.value))["metaData"])
        return found

    def scripts(self) -> list[str]:
        return [call.split()[3] for call in self.programs.calls() if "batch_script" in call]


def run(programs: Programs, *jobs: int, array: int = 0) -> None:
    names = [f"{array}_{task}" if array else str(job) for task, job in enumerate(jobs)]
    programs.set_squeue(
        *(squeue_job(name, "RUNNING", raw=str(job)) for name, job in zip(names, jobs, strict=True))
    )
    programs.set("scontrol", "".join(scontrol_job(str(job)) for job in jobs))


async def test_start_has_script_and_description(programs: Programs) -> None:
    bridge = Bridge(programs)
    programs.set_squeue(squeue_job("7", "PENDING"))
    programs.set_script(7, SCRIPT.encode())
    assert await bridge.poll() == []
    run(programs, 7)
    (metadata,) = await bridge.poll()
    assert metadata["jobScript"] == SCRIPT
    assert metadata["slurmInfo"] == scontrol_job("7").strip()
    assert bridge.scripts() == ["7"]
    programs.set_squeue(squeue_job("7", "COMPLETED", end="2026-11-20T10:05:00"))
    assert await bridge.poll() == await bridge.poll() == []
    assert bridge.scripts() == []


@pytest.mark.parametrize("job_script", [True, False])
@pytest.mark.parametrize("slurm_info", [True, False])
async def test_each_text_has_its_option(
    programs: Programs, *, job_script: bool, slurm_info: bool
) -> None:
    """Scripts may contain secrets: a site opts in."""
    bridge = Bridge(programs, job_script=job_script, slurm_info=slurm_info)
    run(programs, 7)
    programs.set_script(7, b"#!/bin/sh\n")
    (metadata,) = await bridge.poll()
    assert ("jobScript" in metadata, "slurmInfo" in metadata) == (job_script, slurm_info)
    assert bridge.scripts() == (["7"] if job_script else [])


async def test_script_is_never_in_an_envelope(programs: Programs) -> None:
    """Nor in a dead letter of a job without a valid event."""
    bridge = Bridge(programs)
    run(programs, 7)
    programs.set_script(7, b"#!/bin/sh\nsecret\n")
    (metadata,) = await bridge.poll()
    assert "secret" in metadata["jobScript"]
    jobs = bridge.jobs[0]
    assert "secret" in repr(jobs[0].start_metadata)
    for envelope in SlurmToSonar(site=bridge.source.site).feed(jobs):
        assert b"alice" in encode_sonar(envelope)
        assert b"secret" not in encode_sonar(envelope)
    ended = replace(jobs[0], user="", state="failed", end=jobs[0].start)
    translator = SlurmToCc(site=bridge.source.site)
    made = translator.feed(Jobs([ended]))
    (rejected,) = made.rejected
    assert not made
    assert b"alice" in rejected.original
    assert b"secret" not in rejected.original


async def test_array_tasks_share_one_request(programs: Programs) -> None:
    bridge = Bridge(programs)
    for job in (7, 8, 9):
        programs.set_script(job, b"#!/bin/sh\n")
    run(programs, 7, 8, array=7)
    assert [each["jobScript"] for each in await bridge.poll()] == ["#!/bin/sh\n"] * 2
    run(programs, 7, 8, 9, array=7)
    assert [each["jobScript"] for each in await bridge.poll()] == ["#!/bin/sh\n"]
    assert bridge.scripts() == ["7"]


async def test_component_has_the_script_of_its_job(programs: Programs) -> None:
    """Slurm lists a script for each component, which is empty for all but the first."""
    bridge = Bridge(programs)
    programs.set_script(7, b"#!/bin/sh\n")
    programs.set_squeue(
        squeue_job("7+0", "RUNNING", raw="7"), squeue_job("7+1", "RUNNING", raw="8")
    )
    programs.set("scontrol", scontrol_job("7") + scontrol_job("8"))
    assert [each["jobScript"] for each in await bridge.poll()] == ["#!/bin/sh\n"] * 2
    assert bridge.scripts() == ["7"]


async def test_interactive_job_has_no_script(programs: Programs) -> None:
    bridge = Bridge(programs)
    run(programs, 7)
    programs.set("scontrol", scontrol_job("7", batch=0))
    (metadata,) = await bridge.poll()
    assert "jobScript" not in metadata
    assert "slurmInfo" in metadata
    assert bridge.scripts() == []


async def test_job_starts_without_script_on_failure(
    programs: Programs, caplog: pytest.LogCaptureFixture
) -> None:
    """This is logged once a minute, not for each job."""
    bridge = Bridge(programs)
    programs.set_script(9, b"#!/bin/sh\n")
    run(programs, 7, 8, 9)
    with caplog.at_level(logging.WARNING):
        found = await bridge.poll()
    assert ["jobScript" in each for each in found] == [False, False, True]
    assert all("slurmInfo" in each for each in found)
    (record,) = caplog.records
    assert "job 7: scontrol: ended with 1: down" in record.getMessage()


async def test_description_is_missing_if_scontrol_fails(programs: Programs) -> None:
    bridge = Bridge(programs)
    run(programs, 7)
    programs.set("scontrol", None)
    (metadata,) = await bridge.poll()
    assert not {"jobScript", "slurmInfo"} & metadata.keys()


async def test_requests_of_a_poll_are_bounded(
    programs: Programs, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(start_metadata, "MAX_CALLS", 2)
    bridge = Bridge(programs)
    for job in range(1, 8):
        programs.set_script(job, b"#!/bin/sh\n")
    run(programs, 1, 2, 3)
    assert ["jobScript" in each for each in await bridge.poll()] == [True, True, False]
    run(programs, 1, 2, 3, 4)
    assert ["jobScript" in each for each in await bridge.poll()] == [True]
    assert bridge.scripts() == ["1", "2", "4"]
    assert "more than 2 scripts" in caplog.text


async def test_time_of_a_poll_is_bounded(
    programs: Programs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slurmctld that does not answer is not queried for every job."""
    monkeypatch.setattr(start_metadata, "MAX_SECONDS", 0.2)
    whole = (programs.directory / "scontrol").read_text()
    hanging = whole.replace('cat "', '[ "$1" = write ] && exec sleep 60\ncat "')
    (programs.directory / "scontrol").write_text(hanging)
    for job in (7, 8):
        programs.set_script(job, b"#!/bin/sh\n")
    bridge = Bridge(programs)
    run(programs, 7, 8)
    found = await bridge.poll()
    assert ["slurmInfo" in each for each in found] == [True, True]
    assert bridge.scripts() in (["7"], [])  # it may have been ended before it noted the call


async def test_size_of_a_poll_is_bounded(
    programs: Programs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(start_metadata, "MAX_TOTAL", 25_000)
    bridge = Bridge(programs, slurm_info=False)
    for job in (7, 8, 9):
        programs.set_script(job, b"#" * 10_000)
    run(programs, 7, 8, 9, array=7)
    assert ["jobScript" in each for each in await bridge.poll()] == [True, True, False]


def test_text_is_cut_with_a_note() -> None:
    assert as_text(b"x" * MAX_BYTES) == "x" * MAX_BYTES
    cut = as_text(b"x" * MAX_BYTES + b"yz")
    assert cut.startswith("x" * MAX_BYTES + "\n# ")
    assert f"cut after {MAX_BYTES} of {MAX_BYTES + 2} bytes" in cut


def test_invalid_utf_8_is_replaced() -> None:
    assert as_text(b"caf\xe9 \xc3\xbc\x00") == "caf\ufffd ü\x00"
