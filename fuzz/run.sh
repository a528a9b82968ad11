#!/bin/sh
# Fuzz the line protocol for a bounded time, then run its tests with sanitizers.
# Usage: fuzz/run.sh [seconds [python]]; what atheris finds stays in build/fuzz.
set -eu
cd "$(dirname "$0")/.."
seconds=${1:-60}
python=${2:-.venv/bin/python}

corpus=build/fuzz/corpus
mkdir -p "$corpus"
cp tests/data/slurm_influx/*.lp tests/data/clustercockpit_samples.txt "$corpus"
PYTHONPATH=. "$python" fuzz/lines.py -max_total_time="$seconds" -max_len=2048 -print_final_stats=1 \
    -dict=fuzz/lines.dict -artifact_prefix=build/fuzz/ "$corpus"
fuzz/sanitize.sh "$python"
