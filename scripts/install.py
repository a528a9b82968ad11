"""Install with pip and show how far it is: ``scripts/install.py PYTHON ARGUMENT…``.

On a terminal one line that changes, else one line for each step; pip's whole output if it fails.
"""

import re
import subprocess
import sys
import threading
import time

STEPS = re.compile(r"^\s*(Collecting|Downloading|Building|Preparing|Installing)\b.*")
DETAILS = re.compile(r" \(.*|: (started|finished).*| with status .*")
WIDTH = 78


def main(python: str, *arguments: str) -> int:
    """Run ``pip install`` with some arguments; return its exit status."""
    command = [python, "-m", "pip", "install", "--progress-bar", "off"]
    began = time.monotonic()
    with subprocess.Popen(  # noqa: S603 - the interpreter of our own environment
        [*command, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        step = Step(began)
        said = []
        for line in process.stdout:
            said.append(line)
            if STEPS.match(line):
                step.show(DETAILS.sub("", " ".join(line.split())))
        status = process.wait()
    step.finish()
    if status:
        print("".join(said), file=sys.stderr)
        return status
    print(f"installed in {time.monotonic() - began:.0f} s", file=sys.stderr)
    return 0


class Step:
    """The step that pip is at, on stderr, with the seconds since the start."""

    def __init__(self, began: float) -> None:
        """Start the clock."""
        self.began = began
        self.text = "starting pip"
        self.live = sys.stderr.isatty()
        self._done = threading.Event()
        self._clock = threading.Thread(target=self._tick, daemon=True)
        if self.live:
            self._clock.start()

    def show(self, text: str) -> None:
        """Go on to a step."""
        if text == self.text:
            return
        self.text = text
        if not self.live and not text.startswith("Downloading"):
            print(f"  {text}", file=sys.stderr, flush=True)

    def finish(self) -> None:
        """Stop the clock and erase the line."""
        self._done.set()
        if self.live:
            self._clock.join()
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)

    def _tick(self) -> None:
        while not self._done.wait(0.25):
            line = f"{time.monotonic() - self.began:3.0f} s  {self.text}"[:WIDTH]
            print(f"\r\x1b[K{line}", end="", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
