#!/bin/sh
# Fuzz line protocol, accounting, the protocol of NATS and dead letters for a bounded time each,
# then run the kernels' tests with sanitizers.
# Usage: fuzz/run.sh [seconds [python]]; what atheris finds stays in build/fuzz, and small inputs
# in fuzz/corpus too, to be committed.
set -eu
cd "$(dirname "$0")/.."
seconds=${1:-60}
python=${2:-.venv/bin/python}
"$python" scripts/fuzz_corpus.py unpack

corpus=build/fuzz/frames
mkdir -p "$corpus"
printf '\005MSG a.b 1 5\r\nhello\r\nHMSG a 2 r 12 14\r\nNATS/1.0\r\n\r\nhi\r\nPING\r\n' >"$corpus/usual"
PYTHONPATH=. "$python" fuzz/frames.py -max_total_time="$seconds" -max_len=512 -print_final_stats=1 \
    -dict=fuzz/frames.dict -artifact_prefix=build/fuzz/ "$corpus"

corpus=build/fuzz/dead_letters
mkdir -p "$corpus"
printf '# dead letter {"time":5,"reason":"no","size":9,"sum":"e8b4"}\nm value=1\n' > "$corpus/letter"
PYTHONPATH=. "$python" fuzz/dead_letters.py -max_total_time="$seconds" -max_len=4096 \
    -print_final_stats=1 -artifact_prefix=build/fuzz/ "$corpus"
"$python" scripts/fuzz_corpus.py keep
fuzz/sanitize.sh "$python"
