#!/usr/bin/env python3
"""Keep inputs found by fuzzing, for each target, as lines of JSON in ``fuzz/corpus/``.

``scripts/fuzz_corpus.py unpack`` writes them to files in ``build/fuzz/<target>``, from which
``make fuzz`` continues; ``keep`` adds new inputs from there, small ones only.
"""

import hashlib
import json
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
KEPT = ROOT / "fuzz" / "corpus"
FOUND = ROOT / "build" / "fuzz"
MAX_SIZE = 1024
"""Bytes of an input that is kept; a short one shows as much."""


def read(target: str) -> list[bytes]:
    """Return the inputs that are kept for a target."""
    lines = (KEPT / f"{target}.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line).encode("latin-1") for line in lines]


def unpack(target: str) -> None:
    """Write the kept inputs of a target to files."""
    directory = FOUND / target
    directory.mkdir(parents=True, exist_ok=True)
    for data in read(target):
        name = hashlib.sha1(data, usedforsecurity=False).hexdigest()  # as libFuzzer calls it
        (directory / name).write_bytes(data)


def keep(target: str) -> None:
    """Add the inputs that were found for a target."""
    found = {path.read_bytes() for path in (FOUND / target).iterdir()}
    kept = sorted({*read(target), *(data for data in found if len(data) <= MAX_SIZE)})
    lines = [json.dumps(data.decode("latin-1")) + "\n" for data in kept]
    (KEPT / f"{target}.jsonl").write_text("".join(lines), encoding="utf-8")


def main() -> None:
    """Unpack or keep the inputs of all targets."""
    work = {"unpack": unpack, "keep": keep}[sys.argv[1]]
    for path in sorted(KEPT.glob("*.jsonl")):
        work(path.stem)


if __name__ == "__main__":
    main()
