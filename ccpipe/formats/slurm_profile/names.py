"""Names of node-step files, and job and step lists as users write them."""

import re

import msgspec

from ccpipe.errors import DataError

BATCH, INTERACTIVE, EXTERN = "batch", "interactive", "extern"

_SPECIAL_STEPS = {
    "4294967291": BATCH,
    "4294967290": INTERACTIVE,
    "4294967292": EXTERN,
    "-5": BATCH,
    "-6": INTERACTIVE,
    "-4": EXTERN,
}
"""Numbers of Slurm's special steps, unsigned as in file names and signed as sh5util prints them."""

_FILE = re.compile(r"(\d{1,10})_(batch|\d{1,10})_([^/\0]+)\.h5")
_KEPT = re.compile(r"\.(\d{1,10})_(batch|\d{1,10})_([^/\0]+)\.\d+\.h5")
_JOB = re.compile(r"(\d{1,10})((?:[_+]\d{1,10})?)(?:\.(batch|interactive|extern|\d{1,10}))?")


class NodeStepName(msgspec.Struct, frozen=True):
    """The job, step and node of a node-step file."""

    job: int
    """The raw job id: each task of an array and each component of a het job has its own."""
    step: str
    """A number, ``batch``, ``interactive`` or ``extern``."""
    node: str

    @property
    def file_name(self) -> str:
        numbers = {word: number for number, word in _SPECIAL_STEPS.items() if number[0] != "-"}
        step = self.step if self.step == BATCH else numbers.get(self.step, self.step)
        return f"{self.job}_{step}_{self.node}.h5"

    def kept_name(self, number: int) -> str:
        """Return the name for an earlier run's file, which sh5util and Slurm ignore."""
        return f".{self.file_name.removesuffix('.h5')}.{number}.h5"


def parse_file_name(name: str) -> NodeStepName | None:
    """Parse the name of a node-step file; None for other names."""
    found = _FILE.fullmatch(name) or _KEPT.fullmatch(name)
    if found is None:
        return None
    return NodeStepName(int(found[1]), step_name(found[2]), found[3])


def step_name(text: str) -> str:
    return _SPECIAL_STEPS.get(text, text)


class JobSelection(msgspec.Struct, frozen=True):
    """A job, or one of its steps, as users write it: ``13``, ``13.0``, ``13_1.batch``, ``17+1``."""

    job: int
    job_text: str
    """The job without the step."""
    step: str | None = None

    def raw_id(self) -> int:
        """Return the raw job id, as used in file names.

        Raises DataError for array tasks and components of het jobs: their raw id cannot be
        computed, and the array's id belongs to another task.
        """
        if self.job_text == str(self.job):
            return self.job
        raise DataError(
            f"{self.job_text}: files are named by raw job ids, and this one is unknown"
            " (sacct -X -o JobIDRaw prints it)"
        )


def parse_jobs(text: str) -> list[JobSelection]:
    """Parse a comma-separated list of jobs and steps; raises DataError."""
    found: list[JobSelection] = []
    for part in text.split(","):
        match = _JOB.fullmatch(part.strip())
        if match is None:
            raise DataError(f"not a job: {part!r:.80} (expected e.g. 13, 13.0, 13_1.batch, 17+1)")
        job, task, step = match.groups()
        found.append(JobSelection(int(job), f"{int(job)}{task}", step and step_name(step)))
    return found
